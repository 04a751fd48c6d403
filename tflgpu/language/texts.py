"""Checks of texts that callers give."""

from __future__ import annotations

from collections.abc import Sequence


def check_texts(what: str, texts: object) -> None:
    """Accept a list of texts that are not empty.

    Args:
        what: The name of the list, for messages.
        texts: A caller's value.

    Raises:
        TypeError: It is no sequence of texts.
        ValueError: A text is empty.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not all(isinstance(each, str) for each in texts):
        raise TypeError(f"{what} is {texts!r}; a list of texts was expected")
    if "" in texts:
        raise ValueError(f"{what} has an empty text, which no answer could avoid; the text of a token was expected")


def utf8_text(what: str, text: object) -> str:
    """Return a caller's text.

    Args:
        what: The name of the text, for messages.
        text: A caller's value.

    Raises:
        TypeError: It is no text.
        ValueError: UTF-8 cannot have it, because it has a lone surrogate.
    """
    if not isinstance(text, str):
        raise TypeError(_no_text(what, text))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} is no text in UTF-8, at character {error.start}") from error
    return text


def _no_text(what: str, found: object) -> str:
    """Why something is no text."""
    kind = type(found).__name__
    if isinstance(found, bytes | bytearray):
        advice = "decode it, as by prompt.decode()"
    elif isinstance(found, list | tuple | dict):
        advice = "give the content of the last message, as messages[-1]['content']"
    else:
        advice = "give it as str"
    return f"{what} is of type {kind}, and a text was expected: {advice}"
