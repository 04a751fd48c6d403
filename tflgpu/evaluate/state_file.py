"""The rows of an evaluation that is under way, on disk, so that an interrupted one goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tflgpu.evaluate.task import Row

KIND = "tflgpu evaluation"


class StateFile:
    """A line of JSON that says which evaluation it is, and one for each row.

    The file appears at once with its first line; each row is appended by one write. What a process that was killed
    leaves unfinished is at most a last line without an end, which is dropped.

    rows: by the keys of their files.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        """identity: as JSON has it. Raises OSError, or ValueError for a file that belongs to something else."""
        self.path = path
        self.rows: dict[str, Row] = {}
        self._header = {"kind": KIND} | dict(identity)
        if path.exists():
            self._read()
        else:
            self._create()

    def append(self, row: Row) -> None:
        """Keep a row, unless another process was done with the same evaluation and has removed the file.

        Args:
            row: In types of JSON.

        Raises:
            OSError: The file cannot be written.
        """
        self.rows[row["file"]] = row
        with suppress(FileNotFoundError), open(self.path, "ab", buffering=0, opener=_existing) as file:
            file.write(_line(row))

    def remove(self) -> None:
        """When the evaluation is done. Raises OSError."""
        self.path.unlink(missing_ok=True)

    def _create(self) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(_line(self._header))
            temporary.replace(self.path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        try:
            header, *rows = map(json.loads, content[:whole].splitlines())
            if header.get("kind") != KIND:
                raise ValueError
            self.rows = {row["file"]: row for row in rows}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{self.path} is not the state of an evaluation; name another file with --state") from None
        if header != self._header:
            keys = [key for key in self._header | header if header.get(key) != self._header.get(key)]
            differing = ", ".join(f"{key} ({header.get(key)!r} there, {self._header.get(key)!r} here)" for key in keys)
            raise ValueError(
                f"{self.path} belongs to another evaluation, which differs in {differing}; remove it, or name another "
                "file with --state"
            )
        if whole < len(content):
            os.truncate(self.path, whole)


def _existing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_CREAT)


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"
