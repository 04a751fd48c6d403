"""The names of classes that a model's metadata name a packed file for."""

from __future__ import annotations

from tflgpu.errors import ModelError
from tflgpu.model.metadata.metadata_reader import read_metadata
from tflgpu.model.metadata.packed_files import read_packed_file
from tflgpu.model.text import printable


def labels_in_file(model: bytes) -> list[str]:
    """Return the labels of the first output that has any; empty if there are none.

    Args:
        model: The bytes of the file.

    Raises:
        ModelError: The metadata or a packed file are damaged.
    """
    names = [name for output in read_metadata(model).outputs for name in output.labels]
    if not names:
        return []
    try:
        lines = read_packed_file(model, names[0]).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ModelError(f"{names[0]!r}, which the model's metadata name, is no text in UTF-8: {error}") from error
    return [printable(line) for line in lines]
