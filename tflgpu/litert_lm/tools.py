"""Functions that a model may call, under LiteRT-LM's names."""

from __future__ import annotations

import inspect
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

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
