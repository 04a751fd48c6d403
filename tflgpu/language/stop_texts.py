"""Ends a text where one of several texts begins."""

from __future__ import annotations

from collections.abc import Sequence


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
