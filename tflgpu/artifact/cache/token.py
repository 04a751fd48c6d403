"""The two hashes of a model's bytes: its token, which names it, and its content hash, which identifies it."""

from __future__ import annotations

from mmap import mmap

Bytes = bytes | bytearray | memoryview | mmap

# FarmHash's constants, and what numbers wrap around at.
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
MASK = (1 << 64) - 1

LONGEST = 64  # bytes that `fingerprint64` takes


def model_token(data: Bytes) -> int:
    """The 64-bit model token: FarmHash's ``Fingerprint64`` of the xxh3-128 of the model file's bytes.

    Two models can share a token, by choice of the caller or by accident, so an entry that is found by it is also
    checked by its content hash.

    Args:
        data: The bytes of the file.

    Returns:
        A number from 0 to 2^64 - 1.
    """
    return token_of(content_hash(data))


def token_of(content: str) -> int:
    """The token of a model with this content hash."""
    return fingerprint64(bytes.fromhex(content))


def content_hash(data: Bytes) -> str:
    """The xxh3-128 of the model file's bytes as 32 hexadecimal digits."""
    import xxhash

    return xxhash.xxh3_128_hexdigest(memoryview(data))


def fingerprint64(data: bytes) -> int:
    """FarmHash's ``Fingerprint64`` (``farmhashna::Hash64``) of at most 64 bytes.

    From https://github.com/google/farmhash, src/farmhash.cc; longer texts are hashed in another way there.
    """
    length = len(data)
    if length > LONGEST:
        raise ValueError(f"{length} bytes were given; at most {LONGEST} are hashed")
    if length > 32:
        return _of_33_to_64(data)
    if length > 16:
        mul = K2 + 2 * length
        a, b = _word(data, 0) * K1 & MASK, _word(data, 8)
        c, d = _word(data, length - 8) * mul & MASK, _word(data, length - 16) * K2
        first = _rotated(a + b, 43) + _rotated(c, 30) + d
        return _mixed(first, a + _rotated(b + K2, 18) + c, mul)
    if length >= 8:
        mul = K2 + 2 * length
        a, b = _word(data, 0) + K2, _word(data, length - 8)
        return _mixed(_rotated(b, 37) * mul + a, (_rotated(a, 25) + b) * mul, mul)
    if length >= 4:
        first = int.from_bytes(data[:4], "little")
        return _mixed(length + (first << 3), int.from_bytes(data[-4:], "little"), K2 + 2 * length)
    if length > 0:
        y, z = data[0] + (data[length >> 1] << 8), length + (data[-1] << 2)
        return _shifted(y * K2 ^ z * K0) * K2 & MASK
    return K2


def _of_33_to_64(data: bytes) -> int:
    length = len(data)
    mul = K2 + 2 * length
    a, b = _word(data, 0) * K2 & MASK, _word(data, 8)
    c, d = _word(data, length - 8) * mul & MASK, _word(data, length - 16) * K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    z = _mixed(y, a + _rotated(b + K2, 18) + c, mul)
    e, f = _word(data, 16) * mul & MASK, _word(data, 24)
    g, h = (y + _word(data, length - 32)) * mul & MASK, (z + _word(data, length - 24)) * mul
    return _mixed(_rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + a, 18) + g, mul)


def _word(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _rotated(x: int, by: int) -> int:
    x &= MASK
    return (x >> by | x << (64 - by)) & MASK


def _shifted(x: int) -> int:
    x &= MASK
    return x ^ x >> 47


def _mixed(u: int, v: int, mul: int) -> int:
    """HashLen16 there: one number of two."""
    u, v = u & MASK, v & MASK
    a = _shifted((u ^ v) * mul)
    return _shifted((v ^ a) * mul) * mul & MASK
