"""Parts an answer into what is for the user and what is not, such as thoughts, by the marks that a file names."""

from __future__ import annotations

from collections.abc import Sequence

from tflgpu.language.language_metadata import Channel
from tflgpu.language.stop_texts import TextUntilStop


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
