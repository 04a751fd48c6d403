"""Text of strangers as it may be shown: a terminal obeys the control characters in it."""

from __future__ import annotations

import re

# Control characters, those that turn the direction of what follows, line separators, and halves of characters, which
# nothing can print.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return a text with each character that is no sign of a script as an escape: ``\x1b``, ``\n``, ``\u202e``.

    Args:
        text: Of a file; it may hold anything.
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """Return the same for text of several lines.

    Args:
        text: Of a file; only its ends of lines stay.
    """
    return "\n".join(map(printable, text.split("\n")))


def decoded(raw: bytes | None) -> str:
    """Return a text of a model's file, printable. All names go through here, so that nothing later has to think of it.

    Args:
        raw: Bytes that may be no UTF-8; None for an absent text.
    """
    return printable((raw or b"").decode("utf-8", "replace"))
