"""Messages of LiteRT-LM, which are dictionaries with roles and contents, and functions that a model may call."""

from __future__ import annotations

import enum
import inspect
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class Role(enum.Enum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    MODEL = "assistant"
    TOOL = "tool"


@dataclass
class ToolCall:
    """A call of a function that a model asks for."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None
    type: str = "function"

    def to_json(self) -> dict[str, Any]:
        """Return the call as templates expect it."""
        call: dict[str, Any] = {"type": self.type, "function": {"name": self.name, "arguments": self.arguments}}
        return call if self.id is None else call | {"id": self.id}


class Content:
    """Part of a message: ``Content.Text`` or ``Content.ToolResponse``."""

    Text: ClassVar[type[Text]]
    ToolResponse: ClassVar[type[ToolResponse]]

    def to_json(self) -> dict[str, Any]:
        """Return the part as templates expect it."""
        raise NotImplementedError


@dataclass
class Text(Content):
    """Text of a message."""

    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the part as templates expect it."""
        return {"type": "text", "text": self.text}

    def __str__(self) -> str:
        return self.text


@dataclass
class ToolResponse(Content):
    """The result of a function that the model has called."""

    name: str
    response: Any

    def to_json(self) -> dict[str, Any]:
        """Return the part as templates expect it."""
        return {"type": "tool_response", "name": self.name, "response": self.response}


Content.Text = Text
Content.ToolResponse = ToolResponse


class Contents(list[Content]):
    """Parts of a message."""

    @classmethod
    def of(cls, *parts: str | Content | Sequence[Content]) -> Contents:
        """Return contents.

        Args:
            *parts: Texts, parts, or one sequence of parts.

        Returns:
            All of them.
        """
        if len(parts) == 1 and isinstance(parts[0], Sequence) and not isinstance(parts[0], str):
            parts = tuple(parts[0])
        return cls(Text(part) if isinstance(part, str) else part for part in parts)  # type: ignore[misc]

    @classmethod
    def empty(cls) -> Contents:
        """Return contents without parts."""
        return cls()

    @property
    def contents(self) -> Contents:
        """The parts themselves, for scripts of earlier versions."""
        return self

    def to_json(self) -> list[dict[str, Any]]:
        """Return the parts as templates expect them."""
        return [part.to_json() for part in self]

    def __str__(self) -> str:
        return "".join(str(part) for part in self if isinstance(part, Text))


class Message(dict[str, Any]):
    """Message of a conversation: a dictionary with ``role``, ``content``, ``tool_calls`` and ``channels``.

    The attributes are made of the dictionary when they are read; a changed message is another one.
    """

    def __init__(
        self,
        role: Role,
        contents: Contents | None = None,
        tool_calls: Sequence[ToolCall] = (),
        channels: Mapping[str, str] | None = None,
    ) -> None:
        """Make a message.

        Args:
            role: Who says it.
            contents: What is said.
            tool_calls: Calls of functions.
            channels: Texts that are not for the user, by name.
        """
        super().__init__(role=role.value, content=(contents or Contents()).to_json())
        if tool_calls:
            self["tool_calls"] = [call.to_json() for call in tool_calls]
        if channels:
            self["channels"] = dict(channels)

    @property
    def role(self) -> Role:
        """Who says it."""
        role = self.get("role", "assistant")
        return Role.MODEL if role == "model" else Role(role)

    @property
    def contents(self) -> Contents:
        """The parts of the message: texts, images, sounds, calls and results of functions."""
        found = self.get("content") or ()
        return Contents(map(_content, [found] if isinstance(found, str) else found))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Calls of functions."""
        calls: Iterable[Mapping[str, Any]] = self.get("tool_calls") or ()
        return [
            ToolCall(call["function"]["name"], dict(call["function"].get("arguments") or {}), call.get("id"))
            for call in calls
        ]

    @property
    def channels(self) -> dict[str, str]:
        """Texts that are not for the user, by name."""
        return dict(self.get("channels") or {})

    def to_json(self) -> dict[str, Any]:
        """Return the message as a plain dictionary."""
        return dict(self)

    def __str__(self) -> str:
        return str(self.contents)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Message:
        """Return the message of a dictionary.

        Args:
            data: With ``role`` and ``content``.
        """
        message = cls.__new__(cls)
        message.update(data)
        return message

    @classmethod
    def system(cls, said: str | Contents) -> Message:
        """Return a message that tells the model how to answer.

        Args:
            said: A text, or several parts.
        """
        return cls(Role.SYSTEM, said if isinstance(said, Contents) else Contents.of(said))

    @classmethod
    def user(cls, said: str | Contents) -> Message:
        """Return a message of a user.

        Args:
            said: A text, or several parts, such as images.
        """
        return cls(Role.USER, said if isinstance(said, Contents) else Contents.of(said))

    @classmethod
    def model(
        cls,
        contents: Contents | None = None,
        tool_calls: Sequence[ToolCall] = (),
        channels: Mapping[str, str] | None = None,
    ) -> Message:
        """Return a message of the model.

        Args:
            contents: The parts of the answer; None for an answer that only calls functions.
            tool_calls: Functions that the model calls.
            channels: Texts besides the answer by the name of their channel, such as thoughts.
        """
        return cls(Role.MODEL, contents, tool_calls, channels)

    @classmethod
    def tool(cls, contents: Contents) -> Message:
        """Return a message with the results of functions.

        Args:
            contents: A :class:`ToolResponse` for each.
        """
        return cls(Role.TOOL, contents)


def as_message(said: str | Contents | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a caller's words as a message, in types of JSON.

    Args:
        said: A text or parts of a user, or a message that is whole already.
    """
    if isinstance(said, str):
        return {"role": "user", "content": said}
    return Message.user(said) if isinstance(said, Contents) else said


def _content(part: str | Mapping[str, Any]) -> Content:
    if isinstance(part, str):
        return Text(part)
    if part.get("type") == "text":
        return Text(part.get("text", ""))
    if part.get("type") == "tool_response":
        return ToolResponse(part.get("name", ""), part.get("response"))
    raise ValueError(f"a message has content of the type {part.get('type')!r}; only texts are supported")


_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}


class Tool(ABC):
    """A function with its description."""

    @abstractmethod
    def get_tool_description(self) -> dict[str, Any]:
        """Return the description for the model, as OpenAI's interface has it."""

    @abstractmethod
    def execute(self, param: Mapping[str, Any]) -> Any:
        """Call the function.

        Args:
            param: Its arguments by name.

        Returns:
            Its result.
        """


class ToolEventHandler(ABC):
    """Decides whether calls are made, and what the model sees of their results."""

    @abstractmethod
    def approve_tool_call(self, tool_call: dict[str, Any]) -> bool:
        """Return whether a call is made.

        Args:
            tool_call: With name and arguments under ``function``.
        """

    @abstractmethod
    def process_tool_response(self, tool_response: Any) -> Any:
        """Return what the model sees of a result.

        Args:
            tool_response: The result.
        """


def tool_from_function(func: Callable[..., Any]) -> Tool:
    """Return a tool of a function: its name, annotations and docstring (Google's style) describe it.

    Args:
        func: With parameters that can be given by name.
    """
    return _FunctionTool(func)


class _FunctionTool(Tool):
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def get_tool_description(self) -> dict[str, Any]:
        text = inspect.getdoc(self._function) or ""
        told = _arguments_told(text)
        types = typing.get_type_hints(self._function)
        parameters = inspect.signature(self._function).parameters
        properties = {
            name: _schema(types.get(name)) | ({"description": told[name]} if name in told else {})
            for name in parameters
        }
        required = [name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]
        return {
            "type": "function",
            "function": {
                "name": self._function.__name__,
                "description": text.partition("\n")[0],
                "parameters": {"type": "object", "properties": properties, "required": required},
            },
        }

    def execute(self, param: Mapping[str, Any]) -> Any:
        return self._function(**param)


def _schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of an annotation; a text for what has none."""
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    if typing.get_origin(kind) in (list, Sequence, Iterable):
        return {"type": "array", "items": _schema(typing.get_args(kind)[0])}
    return {"type": "array"} if kind is list else {"type": "string"}


def _arguments_told(text: str) -> dict[str, str]:
    """Return what the section ``Args`` of a docstring says of each argument."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    told: dict[str, str] = {}
    for line in section[1].splitlines() if section else ():
        if match := re.match(r"(?: {2}| {4})(\w+)(?: \(.*?\))?: (.*)", line):
            name = match[1]
            told[name] = match[2].strip()
        elif line.strip() and told:
            told[name] += f" {line.strip()}"
    return told
