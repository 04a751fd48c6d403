"""Parts what a model replies: what it says, thoughts and other channels, and calls of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tflgpu.language.channels import ChannelText
from tflgpu.language.function_calls import CallMarks, parted
from tflgpu.language.language_metadata import Channel

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
