"""The zip archive that TFLite Metadata append to a .tflite file, with the files that they name."""

from __future__ import annotations

import zipfile
import zlib
from io import BytesIO

from tflgpu.errors import ModelError

LONGEST_FILE = 16 << 20  # bytes; an archive can claim any number


def read_packed_file(model: bytes, name: str) -> bytes:
    """Return a file that is packed into a model.

    Args:
        model: The bytes of the model's file.
        name: The file's name in the metadata.

    Raises:
        ModelError: It is not there, damaged, or longer than 16 MB.
    """
    try:
        with zipfile.ZipFile(BytesIO(model)) as archive, archive.open(name) as file:
            content = file.read(LONGEST_FILE + 1)
    except KeyError:
        raise ModelError(f"the model's metadata name a file {name!r}, which is not packed into the model") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise ModelError(f"{name!r}, which the model's metadata name, cannot be unpacked: {error}") from error
    if len(content) > LONGEST_FILE:
        raise ModelError(f"{name!r}, which the model's metadata name, is longer than {LONGEST_FILE} bytes")
    return content
