"""The two hashes of a model's bytes: its token, which names it, and its content hash, which identifies it."""

from __future__ import annotations

from mmap import mmap

Bytes = bytes | bytearray | memoryview | mmap


def model_token(data: Bytes) -> int:
    """The 64-bit model token: FarmHash's ``Fingerprint64`` of the model file's bytes.

    TensorFlow Lite applications compute the same number for the same file. Two models can share a token, by choice of
    the caller or by accident, so an entry that is found by it is also checked by its content hash.

    Args:
        data: The bytes of the file.

    Returns:
        A number from 0 to 2^64 - 1.
    """
    import farmhash

    token: int = farmhash.Fingerprint64(data)
    return token


def content_hash(data: Bytes) -> str:
    """The xxh3-128 of the model file's bytes as 32 hexadecimal digits."""
    import xxhash

    return xxhash.xxh3_128_hexdigest(memoryview(data))
