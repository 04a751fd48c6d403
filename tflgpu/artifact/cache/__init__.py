"""The disk cache: entries are found by key and checked before use. A fault of the disk never fails a compilation.

The package knows bytes, keys, files and faults, but not models. ``cache_format/README.md`` specifies the files.
Libraries that a warm start does not need (diskcache, safetensors, platformdirs, zipfile) are imported where they are
used. Most records are named tuples: defining one takes 0.1 ms at import, a frozen dataclass 0.5 ms.
"""

from __future__ import annotations

from tflgpu.artifact.cache.directory import default_directory, warn_once
from tflgpu.artifact.cache.disk_cache import DEFAULT_LIMIT, Cache, Finding, evict, pack, survey
from tflgpu.artifact.cache.key import (
    FORMAT_FOLDER,
    DeviceIdentity,
    FileStamp,
    Key,
    content_hash,
    kernel_key,
    model_token,
    token_of,
    trial_key,
    unit_key,
)
from tflgpu.artifact.cache.payload import Payload
from tflgpu.artifact.cache.store import Entry

__all__ = [
    "DEFAULT_LIMIT",
    "FORMAT_FOLDER",
    "Cache",
    "DeviceIdentity",
    "Entry",
    "FileStamp",
    "Finding",
    "Key",
    "Payload",
    "content_hash",
    "default_directory",
    "evict",
    "kernel_key",
    "model_token",
    "pack",
    "survey",
    "token_of",
    "trial_key",
    "unit_key",
    "warn_once",
]
