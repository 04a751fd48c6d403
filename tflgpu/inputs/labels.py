"""The names of classes, from a text file or from the model's own metadata."""

from __future__ import annotations

from pathlib import Path

from tflgpu.errors import ModelError
from tflgpu.model.text import printable


def read_labels(path: Path) -> list[str]:
    """Line n names class n. Raises OSError, or ValueError for what is no text in UTF-8."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}") from error


def packed_labels(model: bytes) -> list[str]:
    """The labels in a model's metadata, of the first output that has any; empty if it has none.

    Raises ModelError for metadata or a packed file that are damaged.
    """
    # A file of labels does without.
    from tflgpu.model.metadata.metadata_reader import read_metadata
    from tflgpu.model.metadata.packed_files import read_packed_file

    names = [name for output in read_metadata(model).outputs for name in output.labels]
    if not names:
        return []
    try:
        lines = read_packed_file(model, names[0]).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ModelError(f"{names[0]!r}, which the model's metadata name, is no text in UTF-8: {error}") from error
    return [printable(line) for line in lines]
