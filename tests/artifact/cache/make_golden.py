"""Write the golden files of ``cache_format/golden``: ``python -m tests.artifact.cache.make_golden``.

They are written once for each format version. To write those of the current version anew is to break every cache in the
field, so it goes with a new FORMAT_VERSION, and the file that was current becomes an old one that is refused.
"""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import save_file

from tests.artifact.cache.entries import metadata_of, model_key, tensors_of
from tflgpu.artifact.cache import payload
from tflgpu.artifact.cache.key import canonical_json

FOLDER = Path(__file__).parents[3] / "cache_format" / "golden"
KEY = model_key(0x0123456789ABCDEF)
SIZE = 10


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    tensors = tensors_of(KEY, SIZE)
    current = FOLDER / "version1.safetensors"
    payload.write(current, KEY.text, tensors, metadata_of(KEY))

    damaged = bytearray(current.read_bytes())
    damaged[-200] ^= 0x10  # one bit of the binary
    (FOLDER / "damaged.safetensors").write_bytes(damaged)

    # Format 0 was never released. It has no checksum, and only a hash for a key.
    description = canonical_json({"version": 0, "key": KEY.content})
    save_file(tensors, FOLDER / "version0.safetensors", {payload.DESCRIPTION: description})


if __name__ == "__main__":
    main()
