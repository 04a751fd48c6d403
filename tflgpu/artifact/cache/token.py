"""The two hashes of a model's bytes: its token, which names it, and its content hash, which identifies it."""

from __future__ import annotations

from mmap import mmap

Bytes = bytes | bytearray | memoryview | mmap

# FarmHash's constant for texts of 16 bytes, and what numbers wrap around at.
K2 = 0x9AE16A3B2F90404F
MASK = (1 << 64) - 1


def model_token(data: Bytes) -> int:
    """Return the 64-bit model token: FarmHash's ``Fingerprint64`` of the xxh3-128 of the model file's bytes.

    Two models can share a token, by choice of the caller or by accident, so an entry that is found by it is also
    checked by its content hash.

    Args:
        data: The bytes of the file.

    Returns:
        A number from 0 to 2^64 - 1.
    """
    return token_of(content_hash(data))


def content_hash(data: Bytes) -> str:
    """Return the xxh3-128 of a model file as 32 hexadecimal digits.

    Args:
        data: The whole file.
    """
    import xxhash

    return xxhash.xxh3_128_hexdigest(memoryview(data))


def token_of(content: str) -> int:
    """Return the token of a model.

    It is ``farmhashna::Hash64`` of https://github.com/google/farmhash, src/farmhash.cc, for 16 bytes.

    Args:
        content: The content hash: 32 hexadecimal digits.
    """
    data = bytes.fromhex(content)
    a, b = int.from_bytes(data[:8], "little") + K2, int.from_bytes(data[8:], "little")
    mul = K2 + 2 * len(data)
    u, v = (_rotated(b, 37) * mul + a) & MASK, (_rotated(a, 25) + b) * mul & MASK
    mixed = _shifted((u ^ v) * mul)
    return _shifted((v ^ mixed) * mul) * mul & MASK


def _rotated(x: int, by: int) -> int:
    x &= MASK
    return (x >> by | x << (64 - by)) & MASK


def _shifted(x: int) -> int:
    x &= MASK
    return x ^ x >> 47
