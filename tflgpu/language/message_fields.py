"""Reads messages of Protocol Buffers field by field: the few that describe language models need no compiled schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from tflgpu.errors import ModelError

# How a field is encoded, in the lowest three bits before it.
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5

DAMAGED = "the metadata are damaged: a field ends after the message"


class Message:
    """The fields of one message by their numbers; those of unknown numbers are left alone."""

    def __init__(self, data: bytes) -> None:
        """Raise ModelError for bytes that are no message."""
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _decode(data):
            self._fields.setdefault(number, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def texts(self, number: int) -> list[str]:
        """Every value of a repeated text."""
        return [value.decode("utf-8", "replace") for value in self._fields.get(number, ()) if isinstance(value, bytes)]

    def text(self, number: int) -> str:
        """Return a text, empty if it is absent; of several values the last one counts."""
        return ["", *self.texts(number)][-1]

    def integers(self, number: int) -> list[int]:
        """Every value of a repeated integer of 32 bits, packed or not."""
        found: list[int] = []
        for value in self._fields.get(number, ()):
            found.extend(_packed(value) if isinstance(value, bytes) else [value])
        return [_signed(value) for value in found]

    def integer(self, number: int) -> int:
        """Return an integer of 32 bits, 0 if it is absent."""
        return [0, *self.integers(number)][-1]

    def messages(self, number: int) -> list[Self]:
        """Every value of a repeated message."""
        return [type(self)(value) for value in self._fields.get(number, ()) if isinstance(value, bytes)]

    def message(self, number: int) -> Self:
        """Return a message, without fields if it is absent."""
        return (self.messages(number) or [type(self)(b"")])[-1]


def _decode(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, encoding = key >> 3, key & 7
        if encoding == VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if encoding == LENGTH:
            size, place = _varint(data, place)
        elif encoding in (EIGHT_BYTES, FOUR_BYTES):
            size = 8 if encoding == EIGHT_BYTES else 4
        else:
            raise ModelError(f"the metadata are damaged: field {number} has the unknown encoding {encoding}")
        if size > len(data) - place:
            raise ModelError(DAMAGED)
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, the lowest first, and the place after it."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise ModelError(DAMAGED)
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _packed(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _varint(data, place)
        yield value


def _signed(value: int) -> int:
    """Return an integer of 32 bits, of which a negative one is stored as 64 bits."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
