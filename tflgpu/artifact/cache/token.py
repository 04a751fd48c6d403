"""The two hashes of a model's bytes: its token, which names it, and its content hash, which proves it."""

from __future__ import annotations

from mmap import mmap

import numpy as np

Bytes = bytes | bytearray | memoryview | mmap


def model_token(data: Bytes) -> int:
    """The 64-bit model token: FarmHash's ``Fingerprint64`` of the model file's bytes.

    It is the number that a TensorFlow Lite application computes for the same file. It is meant as a name: two models
    may share one (by choice of the caller, or by accident), so what is found under it is checked by its content hash.
    """
    import farmhash

    # It takes bytes, and arrays as they lie; other buffers would have to be copied.
    token: int = farmhash.fingerprint64(data if isinstance(data, bytes) else np.frombuffer(data, np.uint8))
    return token


def content_hash(data: Bytes) -> str:
    """The xxh3-128 of the model file's bytes as 32 hexadecimal digits."""
    import xxhash

    return xxhash.xxh3_128_hexdigest(memoryview(data))
