"""Parts what a model replies: what it says, thoughts and other channels, and calls of functions."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tflgpu.errors import ModelError
from tflgpu.language.language_metadata import Channel, LanguageMetadata


class TextUntilStop:
    """A text that comes in pieces, up to the first stop. What may be the beginning of a stop is held back.

    Attributes:
        found: The stop that was found; empty before.
        rest: What came after it in the same piece.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Take the texts that end it."""
        self.found = self.rest = ""
        self._stops, self._held = tuple(stops), ""

    @property
    def is_over(self) -> bool:
        """Whether a stop was found."""
        return self.found != ""

    def add(self, piece: str) -> str:
        """Add a piece, and return the text that is certainly before a stop and was not returned yet.

        Args:
            piece: The next characters; a stop may begin in one piece and end in another.
        """
        if self.is_over or not piece:
            return ""
        text = self._held + piece
        found = [(place, -len(stop), stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            place, _, self.found = min(found)
            self.rest, self._held = text[place + len(self.found) :], ""
            return text[:place]
        known = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[known:]
        return text[:known]

    def finish(self) -> str:
        """Return what is left at the end of the text: the beginning of a stop that did not go on."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text are the beginning of a stop."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


class ChannelText:
    """A text that comes in pieces, of which some lie between the marks of channels. Marks are no part of it.

    A channel without an end goes on to the end of the text.
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        """Take the channels that there may be."""
        self._channels = [channel for channel in channels if channel.start]
        self._open: Channel | None = None
        self._until = self._next_mark()

    def add(self, piece: str) -> list[tuple[str | None, str]]:
        """Add a piece to the text, and return the texts that are certain by now.

        Args:
            piece: Any part of the answer; it may end within a mark.

        Returns:
            Pairs of a channel's name, None for the user, and the text that is added to it.
        """
        found: list[tuple[str | None, str]] = []
        while piece:
            text = self._until.add(piece)
            if text:
                found.append((self._name, text))
            if not self._until.is_over:
                break
            piece = self._until.rest
            mark = self._until.found
            opened = next((channel for channel in self._channels if channel.start == mark), None)
            self._open = opened if self._open is None else None
            self._until = self._next_mark()
        return found

    def finish(self) -> list[tuple[str | None, str]]:
        """Return what is left at the end of the text."""
        rest = self._until.finish()
        return [(self._name, rest)] if rest else []

    @property
    def _name(self) -> str | None:
        return None if self._open is None else self._open.name

    def _next_mark(self) -> TextUntilStop:
        marks = [channel.start for channel in self._channels] if self._open is None else [self._open.end]
        return TextUntilStop([mark for mark in marks if mark])


@dataclass(frozen=True)
class FunctionCall:
    """A call that a model asks for.

    Attributes:
        name: Of the function.
        arguments: By name.
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class CallMarks:
    """Marks of calls in an answer, and the syntax between them: JSON, Python, or FunctionGemma's own."""

    start: str
    end: str
    syntax: str = "json"
    quotes: tuple[str, str] = ("", "")


# By the type of model, where the file says no marks.
_MARKS = {
    "gemma3": CallMarks("```tool_code\n", "\n```", "python"),
    "gemma3n": CallMarks("```tool_code\n", "\n```", "python"),
    "function_gemma": CallMarks("<start_function_call>", "<end_function_call>", "fc", ("<escape>", "<escape>")),
    "gemma4": CallMarks("<|tool_call>", "<tool_call|>", "fc", ('<|"|>', '<|"|>')),
    "lfm2": CallMarks("<|tool_call_start|>", "<|tool_call_end|>", "python"),
}
_JSON_MARKS = CallMarks("<tool_call>", "</tool_call>")


def call_marks(metadata: LanguageMetadata) -> CallMarks:
    """Return the marks of a file's calls of functions.

    Args:
        metadata: The file's.

    Raises:
        ModelError: The syntax of calls is not known.
    """
    known, fields = _MARKS.get(metadata.model_type, _JSON_MARKS), metadata.model_fields
    syntax = str(fields.get("syntax_type") or known.syntax).lower()
    if syntax not in _READERS:
        raise ModelError(f"the file's calls of functions are of the syntax {syntax!r}; {', '.join(_READERS)} are known")
    return CallMarks(
        fields.get("code_fence_start") or known.start,
        fields.get("code_fence_end") or known.end,
        syntax,
        (fields.get("open_quote") or known.quotes[0], fields.get("close_quote") or known.quotes[1]),
    )


def parted(text: str, marks: CallMarks) -> tuple[str, list[FunctionCall]]:
    """Part an answer into the text for the user and the calls of functions.

    Args:
        text: The whole answer.
        marks: The marks of calls.

    Raises:
        ValueError: A call cannot be read; the message has it.
    """
    said, calls = "", []
    while (begin := text.find(marks.start)) >= 0:
        said += text[:begin]
        body, _, text = text[begin + len(marks.start) :].partition(marks.end)
        try:
            calls += _READERS[marks.syntax](body.strip(), marks)
        except (ValueError, SyntaxError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the model's call of a function cannot be read: {body.strip()!r}") from error
    return said + text, calls


def _read_json(text: str, _: CallMarks) -> list[FunctionCall]:
    found = json.loads(text)
    calls = []
    for each in found if isinstance(found, list) else [found]:
        arguments = each.get("arguments", each.get("parameters", {}))
        calls.append(
            FunctionCall(each["name"], json.loads(arguments) if isinstance(arguments, str) else dict(arguments))
        )
    return calls


def _read_python(text: str, _: CallMarks) -> list[FunctionCall]:
    """Read calls with keywords and literals: ``f(a=1)``, several as a list or one on each line, printed or not."""
    calls = []
    for statement in ast.parse(text).body:
        value: Any = statement.value  # type: ignore[attr-defined]
        nodes: list[Any] = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        for node in nodes:
            if ast.unparse(node.func) == "print" and len(node.args) == 1:
                node = node.args[0]
            if node.args:
                raise ValueError("arguments without names")
            arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
            calls.append(FunctionCall(ast.unparse(node.func), arguments))
    return calls


def _read_fc(text: str, marks: CallMarks) -> list[FunctionCall]:
    """Read ``call:name{key:value,...}``, whose texts are between quotes of the file."""
    opened, closed = map(re.escape, marks.quotes)
    texts: list[str] = []

    def keep(match: re.Match[str]) -> str:
        texts.append(match[1])
        return f'"\\u0000{len(texts) - 1}"'

    plain = re.sub(f"{opened}(.*?){closed}", keep, text, flags=re.DOTALL) if opened and closed else text
    calls = []
    for name, body in re.findall(r"call:([\w.-]+)(\{.*?\})(?=\s*(?:call:|$))", plain, re.DOTALL):
        body = re.sub(r"([{,]\s*)([A-Za-z_][\w.-]*)\s*:", r'\1"\2":', body)
        calls.append(FunctionCall(name, _restored(json.loads(body), texts)))
    if not calls:
        raise ValueError("no call")
    return calls


def _restored(value: Any, texts: list[str]) -> Any:
    """Return a value with the texts that were kept apart."""
    if isinstance(value, dict):
        return {key: _restored(each, texts) for key, each in value.items()}
    if isinstance(value, list):
        return [_restored(each, texts) for each in value]
    return texts[int(value[1:])] if isinstance(value, str) and value.startswith("\0") else value


_READERS = {"json": _read_json, "python": _read_python, "fc": _read_fc}

_CALLS = "\0calls"  # the name of the channel from the first call of a function on


class Part(NamedTuple):
    """Some text of a reply.

    Attributes:
        text: What is added.
        channel: The name of the file's channel that it belongs to, None for what is said to the user.
    """

    text: str
    channel: str | None = None


class ReplyParts:
    """A reply that comes piece by piece, and the message that it is."""

    def __init__(self, channels: Sequence[Channel], marks: CallMarks | None) -> None:
        """Take a file's channels, and its marks of calls; None where the model knows no functions."""
        self._channels, self._marks = {channel.name: channel for channel in channels}, marks
        self._split = ChannelText([*channels, *([Channel(_CALLS, marks.start, "")] if marks else ())])
        self._said: dict[str | None, str] = {}

    def add(self, piece: str) -> list[Part]:
        """Return the parts that a piece adds. Calls of functions are no parts: :meth:`message` has them.

        Args:
            piece: The next characters of the answer.
        """
        return self._parts(self._split.add(piece))

    def finish(self) -> list[Part]:
        """Return what is left at the end."""
        return self._parts(self._split.finish())

    def message(self) -> dict[str, Any]:
        """Return the reply as a message, with ``tool_calls``, ``channels`` and ``reasoning_content`` if it has some.

        A call that cannot be read is in its content, for the caller to see.
        """
        said = dict(self._said)
        content, called = said.pop(None, ""), said.pop(_CALLS, None)
        message: dict[str, Any] = {"role": "assistant"}
        if self._marks is not None and called is not None:
            text = self._marks.start + called
            try:
                more, calls = parted(text, self._marks)
                message["tool_calls"] = [
                    {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
                    for call in calls
                ]
            except ValueError:
                more = text
            content += more
        if said:
            message["channels"] = said
            thoughts = [text for name, text in said.items() if name and self._channels[name].is_reasoning]
            if thoughts:
                message["reasoning_content"] = "".join(thoughts)
        return message | {"content": content}

    def _parts(self, found: Sequence[tuple[str | None, str]]) -> list[Part]:
        for channel, text in found:
            self._said[channel] = self._said.get(channel, "") + text
        return [Part(text, channel) for channel, text in found if channel != _CALLS]
