"""The names of classes, from a text file or from the model's own metadata."""

from __future__ import annotations

from pathlib import Path


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
    from tflgpu.model.metadata.labels_in_file import labels_in_file  # a file of labels does without

    return labels_in_file(model)
