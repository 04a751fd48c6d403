"""The names of classes, from a text file."""

from __future__ import annotations

from pathlib import Path


def read_labels(path: Path) -> list[str]:
    """Return the names of classes; line n of the file names class n.

    Args:
        path: A text file in UTF-8.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no text in UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}") from error
