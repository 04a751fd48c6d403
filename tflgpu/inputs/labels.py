"""The names of classes, from a text file."""

from __future__ import annotations

from pathlib import Path


def read_labels(path: Path) -> list[str]:
    """Line n names class n. Raises OSError, or ValueError for what is no text in UTF-8."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}") from error
