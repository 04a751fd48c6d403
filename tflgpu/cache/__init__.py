"""The disk cache: entries found by key, checked before use, and never the reason why something fails.

The package knows bytes, keys, files and faults, and nothing of models. ``cache_format/README.md`` specifies the files.
What a warm start does not need is imported where it is used: diskcache, safetensors, platformdirs, zipfile, and
``tflgpu.cache.maintenance``, which is for the command line. Records are named tuples, which take a tenth of a
millisecond to define where a frozen dataclass takes half of one.
"""

from __future__ import annotations

from tflgpu.cache.artifact import Artifact
from tflgpu.cache.cache import DEFAULT_LIMIT, Cache
from tflgpu.cache.directory import default_directory
from tflgpu.cache.faults import warn_once
from tflgpu.cache.key import DeviceIdentity, FileStamp, KernelKey, ModelKey
from tflgpu.cache.token import content_hash, model_token

__all__ = [
    "DEFAULT_LIMIT",
    "Artifact",
    "Cache",
    "DeviceIdentity",
    "FileStamp",
    "KernelKey",
    "ModelKey",
    "content_hash",
    "default_directory",
    "model_token",
    "warn_once",
]
