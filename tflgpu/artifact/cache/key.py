"""What names an entry: everything that its bytes depend on, as one canonical JSON text."""

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

# <kind>s/<key hash>, or <kind>s/<token>-<key hash> of the kinds that have a token.
NAME = re.compile(r"((kernels|tunings)/|(models|sources)/(?P<token>[0-9a-f]{16})-)[0-9a-f]{32}\.safetensors")


def canonical_json(value: object) -> str:
    """One text for one value: keys sorted, no spaces, ASCII only, no NaN.

    Raises TypeError or ValueError for what JSON cannot say.
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
    """Base of the four kinds of key. Equal keys have equal ``text``, in every process and on every machine."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The key as JSON values; ``kind`` is one of them."""

    @property
    def text(self) -> str:
        """The canonical JSON that is hashed into the entry's name, and stored in the entry to be compared."""
        return canonical_json({"format": FORMAT_VERSION, **self.fields()})

    @property
    def name(self) -> str:
        return entry_name(self.text)


class DeviceIdentity(NamedTuple):
    """What makes a binary of one device useless on another; the texts are OpenCL's own."""

    platform: str
    device: str
    driver: str


@dataclass(frozen=True)
class KernelKey(Key):
    """A program binary, by what the device's compiler sees: the source text and the build flags."""

    source: str
    flags: str
    device: DeviceIdentity

    def fields(self) -> dict[str, Any]:
        source = xxhash.xxh3_128_hexdigest(self.source.encode())
        return {"kind": "kernel", "source": source, "flags": self.flags, **self.device._asdict()}


@dataclass(frozen=True)
class ModelKey(Key):
    """A prepared model.

    token, content: see ``tflgpu.cache.token``. options: JSON values, only those that change what is prepared.
    version: of tflgpu.
    """

    token: int
    content: str
    options: Mapping[str, Any]
    device: DeviceIdentity
    version: str

    def fields(self) -> dict[str, Any]:
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
    """Measured parameters of a kernel. kernel: all that its speed depends on. effort: how much was measured."""

    kernel: str
    effort: str
    device: DeviceIdentity
    version: str

    def fields(self) -> dict[str, Any]:
        kernel = xxhash.xxh3_128_hexdigest(self.kernel.encode())
        return {
            "kind": "tuning",
            "kernel": kernel,
            "effort": self.effort,
            "tflgpu": self.version,
            **self.device._asdict(),
        }


class FileStamp(NamedTuple):
    """What changes about a file when its content does; times in nanoseconds. ``changed`` cannot be set by a user."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> FileStamp:
        """Raises OSError."""
        found = os.stat(path)
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True)
class SourceKey(Key):
    """The content hash of a model file that has been hashed before, under a token that the caller gave."""

    token: int
    stamp: FileStamp

    def fields(self) -> dict[str, Any]:
        return {"kind": "source", "token": f"{self.token:016x}", "stamp": self.stamp._asdict()}
