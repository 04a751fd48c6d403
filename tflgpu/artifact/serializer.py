"""Compiled models in the cache: what they go by, and how they are written and read.

A *token* names a model (by default the Fingerprint64 of its bytes, or a number of the caller's), a content hash proves
it. Beside these the key holds all that an artifact depends on: the options, the device and its driver, this version.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from tflgpu import plugins
from tflgpu.artifact.artifact import Artifact
from tflgpu.artifact.cache import (
    Cache,
    DeviceIdentity,
    FileStamp,
    ModelKey,
    TuningKey,
    content_hash,
    model_token,
    warn_once,
)
from tflgpu.artifact.records import Blob, decode, encode
from tflgpu.model.model_source import ModelSource, mapped, read_bytes
from tflgpu.options import Options
from tflgpu.target import Target
from tflgpu.version import __version__

T = TypeVar("T")

MALFORMED = (KeyError, TypeError, ValueError, IndexError)  # what decoding other data than an artifact raises


def open_cache(options: Options) -> Cache | None:
    """The cache that ``options`` ask for. Raises CacheDirectoryError if other users can write to it."""
    if options.cache == "off":
        return None
    places = options.cache_dir
    if isinstance(places, str | PathLike):
        places = [places]
    found = None if places is None else list(map(Path, places))
    return Cache(found, limit=options.cache_limit, writable=options.cache == "readwrite")


def model_key(model: ModelSource, options: Options, device: DeviceIdentity, target: Target, cache: Cache) -> ModelKey:
    """What a model compiled with ``options`` for ``device`` goes by."""
    token, content = _identify(model, options.model_token, cache)
    return ModelKey(token, content, _that_matter(options, target), device, _versions())


def load(cache: Cache, key: ModelKey) -> Artifact | None:
    """The artifact, its arrays on the mapped file; None if the cache has no sound one."""
    return _decoded(cache, key, Artifact, "artifact", "compiled model")


def store(cache: Cache, key: ModelKey, artifact: Artifact) -> None:
    """Keep an artifact. Faults of the disk are a CacheWarning."""
    blobs: list[Blob] = []
    record = encode(artifact, blobs)
    cache.store(key, {f"blob.{i}": blob for i, blob in enumerate(blobs)}, {"artifact": record})


def load_choice(cache: Cache, key: TuningKey) -> tuple[int, ...] | None:
    """The parameters that :func:`store_choice` kept; None if the cache has no sound ones."""
    return _decoded(cache, key, tuple[int, ...], "choice", "tuning")


def store_choice(cache: Cache, key: TuningKey, choice: tuple[int, ...]) -> None:
    """Keep measured parameters of a kernel. Faults of the disk are a CacheWarning."""
    cache.store(key, {}, {"choice": list(choice)})


def tuning_key(kernel: str, effort: str, device: DeviceIdentity) -> TuningKey:
    """What the measured parameters of a kernel go by. kernel: all that its speed depends on."""
    return TuningKey(kernel, effort, device, _versions())


def _decoded(cache: Cache, key: ModelKey | TuningKey, kind: type[T], field: str, name: str) -> T | None:
    """The record of a type in a field of an entry's metadata; None if there is no sound one. name: for the warning."""
    found = cache.load(key)
    if found is None:
        return None
    blobs = [found.tensors[f"blob.{i}"] for i in range(len(found.tensors))]
    try:
        return decode(kind, found.metadata[field], blobs)
    except MALFORMED as error:
        warn_once("damaged", f"a cache entry is no {name} ({type(error).__name__}: {error}); it is not used")
        return None


def _identify(model: ModelSource, given: int | None, cache: Cache) -> tuple[int, str]:
    """Token and content hash of a model; one that was seen before, under a token, is not read for it."""
    if not isinstance(model, str | PathLike):
        data = read_bytes(model)
        return model_token(data) if given is None else given, content_hash(data)
    path = Path(model)
    if given is None:
        with mapped(path) as content:
            return model_token(content), content_hash(content)
    known = cache.known_content(given, path)
    if known is None:
        stamp = FileStamp.of(path)
        with mapped(path) as content:
            known = content_hash(content)
        cache.remember_content(given, stamp, known)
    return given, known


def _that_matter(options: Options, target: Target) -> dict[str, Any]:
    """The choices that change what is compiled, as JSON values."""
    return {
        "target": asdict(target),
        "fallback": options.fallback,
        "outputs": options.outputs,
        "signature": options.signature,
        "quantized": options.quantized,
        "tuning": options.tuning,
        "cpu_ops": list(map(str, options.cpu_ops)),
        "batch": options.batch,
        "input_shapes": options.input_shapes,
        "uint8_inputs": options.uint8_inputs,
    }


def _versions() -> str:
    """Of tflgpu, and of the packages that add operators to it: ``1.2``, or ``1.2, my-operators 0.3``."""
    return ", ".join((_version(), *plugins.versions()))


@cache
def _version() -> str:
    """Of tflgpu; while it is under development, also of its files."""
    if "dev" not in __version__:
        return __version__
    package = Path(__file__).parents[1]
    folders = [package, package / "templates", package.parent / "templates"]
    files = (f for folder in folders for f in folder.rglob("*") if f.suffix in (".py", ".j2"))
    return f"{__version__}+{max(f.stat().st_mtime_ns for f in files)}"
