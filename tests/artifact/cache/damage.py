"""Ways to damage a cache: its entries, its index, and what an attacker would put there."""

from __future__ import annotations

import pickle
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.artifact.cache.entries import metadata_of, model_key, tensors_of
from tflgpu.artifact.cache import Cache

KEY = model_key()


def store(cache: Cache, number: int = 0) -> None:
    key = model_key(number)
    cache.store(key, tensors_of(key), metadata_of(key))


def entry(folder: Path, number: int = 0) -> Path:
    return folder / "v1" / model_key(number).name


def database(folder: Path) -> Path:
    return folder / "v1" / "index" / "cache.db"


def flip(data: bytes, place: int) -> bytes:
    place %= 8 * len(data)
    return data[: place // 8] + bytes([data[place // 8] ^ 1 << place % 8]) + data[place // 8 + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one byte": lambda data: b"x",
    "sixteen zeros": lambda data: bytes(16),
    "all zeros": lambda data: bytes(len(data)),
    "truncated by one": lambda data: data[:-1],
    "truncated in the header": lambda data: data[:50],
    "half": lambda data: data[: len(data) // 2],
    "extended": lambda data: data + b"\0",
    "twice": lambda data: data * 2,
    "huge header": lambda data: b"\xff" * 8 + data[8:],
    "header is not JSON": lambda data: data[:8] + b"{" * (len(data) - 8),
    "header is a list": lambda data: (2).to_bytes(8, "little") + b"[]",
    "foreign text": lambda data: b"#!/bin/sh\necho this is not an entry\n" * 10,
    "foreign archive": lambda data: b"PK\3\4" + data,
}


class Exploit:
    """Unpickling it is seen."""

    unpickled = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _seen, ()


def _seen() -> None:
    Exploit.unpickled = True


def poison(path: Path) -> None:
    """Pickles wherever diskcache would load one: as key, as value, in a file, and as a setting."""
    bomb = pickle.dumps(Exploit())
    (path.parent / "bomb.val").write_bytes(bomb)
    row = "INSERT INTO Cache (key, raw, size, mode, filename, value, access_time, store_time) VALUES (?,?,?,?,?,?,0,0)"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM Cache")
        connection.execute(row, (bomb, 0, 1 << 40, 4, None, bomb))
        connection.execute(row, (KEY.name, 1, 1 << 40, 4, None, bomb))
        connection.execute(row, ("v1/other", 1, 1 << 40, 4, "bomb.val", None))
        connection.execute(row, ("v1/outside", 1, 1 << 40, 2, "../../../precious", None))
        connection.execute("UPDATE Settings SET value = ? WHERE key = 'disk_pickle_protocol'", (bomb,))


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def broken_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))


def not_a_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("a file")


def wrong_settings(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO Settings VALUES ('disk_nonsense', 'x')")
