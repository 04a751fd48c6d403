"""Keys of entries: everything that an entry's bytes depend on, as one canonical JSON text."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import xxhash

FORMAT_VERSION = 1

FORMAT_FOLDER = f"v{FORMAT_VERSION}"

SUFFIX = ".safetensors"

# <kind>s/<key hash>, or <kind>s/<token>-<key hash> for the kinds with a token.
NAME = re.compile(
    r"((kernels|probes|trials|tunings|units)/|(models|sources)/(?P<token>[0-9a-f]{16})-)[0-9a-f]{32}\.safetensors"
)


def canonical_json(value: object) -> str:
    """Equal values give equal texts: keys sorted, no spaces, ASCII only, no NaN.

    Raises TypeError or ValueError for values that JSON cannot hold.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def entry_name(key: str) -> str:
    """The path of the entry for a key's canonical JSON text, relative to the format's folder.

    Raises KeyError, TypeError or ValueError if the text is not that of a key.
    """
    fields = json.loads(key)
    token = f"{fields['token']}-" if "token" in fields else ""
    name = f"{fields['kind']}s/{token}{xxhash.xxh3_128_hexdigest(key.encode())}{SUFFIX}"
    if not NAME.fullmatch(name):
        raise ValueError(f"{key} is not the key of a cache entry")
    return name


class Key(ABC):
    """Base of the seven kinds of key. Equal keys have equal ``text``, in every process and on every machine."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The key as JSON values; ``kind`` is one of them."""

    @property
    def text(self) -> str:
        """The canonical JSON. Its hash names the entry, and the entry stores it for comparison."""
        return canonical_json({"format": FORMAT_VERSION, **self.fields()})

    @property
    def name(self) -> str:
        """The entry's path relative to the format's folder."""
        return entry_name(self.text)


class DeviceIdentity(NamedTuple):
    """The facts of a device that its binaries depend on, in OpenCL's own texts."""

    platform: str
    device: str
    driver: str


@dataclass(frozen=True)
class KernelKey(Key):
    """Key of a program binary: all that the device's compiler sees."""

    source: str
    flags: str
    device: DeviceIdentity

    def fields(self) -> dict[str, Any]:
        """What the key is made of, as JSON can write it."""
        source = xxhash.xxh3_128_hexdigest(self.source.encode())
        return {"kind": "kernel", "source": source, "flags": self.flags, **self.device._asdict()}


@dataclass(frozen=True)
class ModelKey(Key):
    """Key of a compiled model.

    token, content: the hashes of ``tflgpu.artifact.cache.token``. options: as JSON values, only those that change what
    is compiled. version: of tflgpu.
    """

    token: int
    content: str
    options: Mapping[str, Any]
    device: DeviceIdentity
    version: str

    def fields(self) -> dict[str, Any]:
        """What the key is made of, as JSON can write it."""
        return {
            "kind": "model",
            "token": f"{self.token:016x}",
            "content": self.content,
            "options": dict(self.options),
            "tflgpu": self.version,
            **self.device._asdict(),
        }


@dataclass(frozen=True)
class TuningKey(Key):
    """Key of a kernel's measured parameters. kernel: all that its speed depends on. effort: how much was measured."""

    kernel: str
    effort: str
    device: DeviceIdentity
    version: str

    def fields(self) -> dict[str, Any]:
        """What the key is made of, as JSON can write it."""
        kernel = xxhash.xxh3_128_hexdigest(self.kernel.encode())
        return {
            "kind": "tuning",
            "kernel": kernel,
            "effort": self.effort,
            "tflgpu": self.version,
            **self.device._asdict(),
        }


class FileStamp(NamedTuple):
    """The facts of a file that change with its content; times in nanoseconds. A user cannot set ``changed``."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileStamp:
        """The stamp in what the system says of a file."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True)
class SourceKey(Key):
    """Key of a model file's content hash, under a token that the caller gave."""

    token: int
    stamp: FileStamp

    def fields(self) -> dict[str, Any]:
        """What the key is made of, as JSON can write it."""
        return {"kind": "source", "token": f"{self.token:016x}", "stamp": self.stamp._asdict()}


@dataclass(frozen=True)
class TrialKey(Key):
    """Key of the fact that LiteRT has run a partition without harm.

    piece: the partition's model. litert: version of LiteRT.
    """

    piece: bytes
    litert: str

    def fields(self) -> dict[str, Any]:
        """What the key is made of, as JSON can write it."""
        return {"kind": "trial", "piece": xxhash.xxh3_128_hexdigest(self.piece), "litert": self.litert}


@dataclass(frozen=True)
class ProbesKey(Key):
    """Key of what was measured of a device. revision: of the measurements."""

    revision: int
    device: DeviceIdentity

    def fields(self) -> dict[str, Any]:
        """What the key is made of, as JSON can write it."""
        return {"kind": "probe", "revision": self.revision, **self.device._asdict()}


@dataclass(frozen=True)
class UnitKey(Key):
    """Key of the fact whether a driver computes right sums with an integer unit of the CPU. source: of the test."""

    unit: str
    source: str
    device: DeviceIdentity

    def fields(self) -> dict[str, Any]:
        """What the key is made of, as JSON can write it."""
        source = xxhash.xxh3_128_hexdigest(self.source.encode())
        return {"kind": "unit", "unit": self.unit, "source": source, **self.device._asdict()}
