"""Keys of entries: everything that an entry's bytes depend on, as one canonical JSON text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from mmap import mmap
from typing import Any, NamedTuple

import xxhash

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


FORMAT_VERSION = 1

FORMAT_FOLDER = f"v{FORMAT_VERSION}"

SUFFIX = ".safetensors"

# <kind>s/<key hash>, or <kind>s/<token>-<key hash> for the kinds with a token.
NAME = re.compile(
    r"((kernels|probes|trials|tunings|units)/|(models|sources)/(?P<token>[0-9a-f]{16})-)[0-9a-f]{32}\.safetensors"
)


def canonical_json(value: object) -> str:
    """Return equal texts for equal values: keys sorted, no spaces, ASCII only, no NaN.

    Args:
        value: In types of JSON.

    Raises:
        TypeError: JSON cannot hold a type in it.
        ValueError: JSON cannot hold a number in it.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def entry_name(key: str) -> str:
    """Return the path of the entry for a key, relative to the format's folder.

    Args:
        key: Canonical JSON.

    Raises:
        KeyError: The text lacks a field of a key.
        TypeError: A field has another type.
        ValueError: The text is not that of a key.
    """
    fields = json.loads(key)
    token = f"{fields['token']}-" if "token" in fields else ""
    name = f"{fields['kind']}s/{token}{xxhash.xxh3_128_hexdigest(key.encode())}{SUFFIX}"
    if not NAME.fullmatch(name):
        raise ValueError(f"{key} is not the key of a cache entry")
    return name


class Key(NamedTuple):
    """All that an entry depends on, as JSON values; ``kind`` is one of them.

    Equal keys have equal ``text``, in every process and on every machine.
    """

    fields: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The canonical JSON. Its hash names the entry, and the entry stores it for comparison."""
        return canonical_json({"format": FORMAT_VERSION, **self.fields})

    @property
    def name(self) -> str:
        """The entry's path relative to the format's folder."""
        return entry_name(self.text)


class DeviceIdentity(NamedTuple):
    """The facts of a device that its binaries depend on, in OpenCL's own texts."""

    platform: str
    device: str
    driver: str


class FileStamp(NamedTuple):
    """The facts of a file that change with its content; times in nanoseconds. A user cannot set ``changed``."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileStamp:
        """Return the stamp of a file.

        Args:
            found: What the system says of it.
        """
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def kernel_key(source: str, flags: str, device: DeviceIdentity) -> Key:
    """Return the key of a program binary: all that the device's compiler sees.

    Args:
        source: The program.
        flags: Options of the compiler.
        device: With its driver.
    """
    return Key({"kind": "kernel", "source": _hash(source), "flags": flags, **device._asdict()})


def model_key(token: int, content: str, options: Mapping[str, Any], device: DeviceIdentity, version: str) -> Key:
    """Return the key of a compiled model.

    Args:
        token: The model's token, of ``tflgpu.artifact.cache.key`` or the caller's.
        content: The content hash of the file.
        options: As JSON values, only those that change what is compiled.
        device: With its driver.
        version: tflgpu's.
    """
    what = {"kind": "model", "token": f"{token:016x}", "content": content, "options": dict(options)}
    return Key({**what, "tflgpu": version, **device._asdict()})


def tuning_key(kernel: str, effort: str, device: DeviceIdentity, version: str) -> Key:
    """Return the key of a kernel's measured parameters.

    Args:
        kernel: All that its speed depends on.
        effort: How thoroughly was measured.
        device: With its driver.
        version: tflgpu's.
    """
    return Key({"kind": "tuning", "kernel": _hash(kernel), "effort": effort, "tflgpu": version, **device._asdict()})


def source_key(token: int, stamp: FileStamp) -> Key:
    """Return the key of a model file's content hash.

    Args:
        token: The caller's.
        stamp: That of the file.
    """
    return Key({"kind": "source", "token": f"{token:016x}", "stamp": stamp._asdict()})


def trial_key(piece: bytes, litert: str) -> Key:
    """Return the key of a trial of LiteRT that did no harm.

    Args:
        piece: The partition's model.
        litert: The version of LiteRT.
    """
    return Key({"kind": "trial", "piece": xxhash.xxh3_128_hexdigest(piece), "litert": litert})


def probes_key(revision: int, device: DeviceIdentity) -> Key:
    """Return the key of a device's measurements.

    Args:
        revision: That of the probes.
        device: With its driver.
    """
    return Key({"kind": "probe", "revision": revision, **device._asdict()})


def unit_key(unit: str, source: str, device: DeviceIdentity) -> Key:
    """Return the key of a driver's trial of the CPU's integer unit.

    Args:
        unit: The unit's name.
        source: The program of the trial.
        device: With its driver.
    """
    return Key({"kind": "unit", "unit": unit, "source": _hash(source), **device._asdict()})


def _hash(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())
