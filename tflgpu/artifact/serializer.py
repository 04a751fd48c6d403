"""Compiled models in the cache: what they go by, and how they are written and read.

A *token* names a model (by default the Fingerprint64 of its content hash, or a number of the caller's), a content hash
proves it. Beside these the key holds all that an artifact depends on: the options, the device and its driver, this
version.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xxhash

from tflgpu import plugins
from tflgpu.artifact.artifact import Artifact, check_artifact
from tflgpu.artifact.cache import (
    Cache,
    DeviceIdentity,
    FileStamp,
    Key,
    content_hash,
    token_of,
    warn_once,
)
from tflgpu.artifact.cache import key as keys
from tflgpu.artifact.cache.key import canonical_json
from tflgpu.artifact.executable import SharedConstants
from tflgpu.artifact.records import Blob, decode, encode
from tflgpu.errors import ModelError
from tflgpu.model.model_source import ModelContent
from tflgpu.options import CacheFiles, Options
from tflgpu.report.profile import Stopwatch
from tflgpu.target import Target
from tflgpu.version import __version__

if TYPE_CHECKING:
    from tflgpu.artifact.cache.bundle import Proof
    from tflgpu.target.probes import Probes

T = TypeVar("T")

_PACKAGE = Path(__file__).parents[1]

# Templates lie in the package, or beside it where it is run from the repository.
SOURCES = (_PACKAGE, _PACKAGE.parent / "templates")

# Rooms of the package that work with compiled models and have no part in compiling them.
APART = frozenset(
    (
        "batch",
        "cli",
        "compiled_model",
        "evaluate",
        "hardware_accelerator",
        "inputs",
        "interpreter",
        "page",
        "tensor_buffer",
    )
)

PROBES_REVISION = 1  # another one where the probes measure other things

# Errors that decoding other data than an artifact raises.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)

DIGEST = "digest"

LARGEST_DIGESTED = 1 << 22  # bytes of a blob


def open_cache(options: Options) -> Cache | None:
    """Return the cache that ``options`` ask for.

    Raises CacheDirectoryError if other users can write to it, BundleError if a bundle is not signed or pinned as the
    options ask for, ValueError if they do and there is none.
    """
    if options.cache == "off":
        return None
    files = options.cache_files
    places = files.path
    if isinstance(places, str | PathLike):
        places = [places]
    found = None if places is None else list(map(Path, places))
    return Cache(found, limit=files.limit, writable=options.cache == "readwrite", proof=_proof(files))


def _proof(files: CacheFiles) -> Proof | None:
    if files.bundle_key is None and not files.bundle_digest:
        return None
    from tflgpu.artifact.cache.bundle import Proof  # few starts need it

    return Proof(files.bundle_key, tuple(files.bundle_digest or ()))


def model_key(
    model: ModelContent,
    options: Options,
    device: DeviceIdentity,
    target: Target,
    shared: Sequence[SharedConstants] = (),
) -> Key:
    """Return the key of a compiled model.

    Args:
        model: The file.
        options: Those that matter are part of the key.
        device: With its driver.
        target: What plans know of the device.
        shared: Constants that the artifact may refer to.

    Raises:
        OSError: The file cannot be read.
    """
    given = options.cache_files.model_token
    content = content_hash(model.bytes)
    return _key(token_of(content) if given is None else given, content, options, device, target, shared)


def find(
    model: ModelContent,
    options: Options,
    device: DeviceIdentity,
    target: Target,
    cache: Cache,
    clock: Stopwatch,
    shared: Sequence[SharedConstants] = (),
) -> tuple[Key, Artifact | None]:
    """Return the key of a compiled model, and its artifact.

    With a token of the caller's, a file that has not changed since it was last hashed is not read, unless other input
    shapes may need it later. What is read is released, if there is an artifact and no other shapes.

    Args:
        model: The file.
        options: Those that matter are part of the key.
        device: With its driver.
        target: What plans know of the device.
        cache: Where to look.
        clock: Takes the times of hashing and loading.
        shared: Constants that the artifact may refer to.

    Returns:
        None for the artifact if the cache has no sound one.

    Raises:
        OSError: The file cannot be read.
    """
    token, path = options.cache_files.model_token, model.path
    if token is not None and path is not None and not model.is_read:
        content = cache.known_content(token, path)
        clock.lap("hash")
        if content is not None:
            key = _key(token, content, options, device, target, shared)
            found = load(cache, key)
            clock.lap("load")
            if found is not None and not found.has_free_axes:
                return key, found
    key = model_key(model, options, device, target, shared)
    if token is not None and model.status is not None:
        cache.remember_content(token, FileStamp.of(model.status), key.fields["content"])
    clock.lap("hash")
    found = load(cache, key)
    if found is not None and not found.has_free_axes:
        model.release()
    clock.lap("load")
    return key, found


def check_unchanged(model: ModelContent, expected: str) -> None:
    """Accept a model whose file has not changed.

    Args:
        model: The file.
        expected: The content hash that it had.

    Raises:
        ModelError: It has another one.
        OSError: The file cannot be read.
    """
    if content_hash(model.bytes) != expected:
        model.release()
        raise ModelError(f"{model.path} has changed since the model was compiled")


def load(cache: Cache, key: Key) -> Artifact | None:
    """Return the artifact, its arrays on the mapped file; None if the cache has no sound one."""
    return _decoded(cache, key, Artifact, "artifact", "compiled model", check_artifact)


def store(cache: Cache, key: Key, artifact: Artifact, name: str | None = None) -> None:
    """Keep an artifact. Faults of the disk are a CacheWarning.

    Args:
        cache: Where to keep it.
        key: The artifact's.
        artifact: The compiled model.
        name: The model's file, for a listing.
    """
    blobs: list[Blob] = []
    record = encode(artifact, blobs)
    store_record(cache, key, "artifact", record, blobs, {"model": name})


def load_choice(cache: Cache, key: Key) -> tuple[int, ...] | None:
    """Return the parameters that :func:`store_choice` kept; None if the cache has no sound ones."""
    return _decoded(cache, key, tuple[int, ...], "choice", "tuning")


def store_choice(cache: Cache, key: Key, choice: tuple[int, ...]) -> None:
    """Keep measured parameters of a kernel. Faults of the disk are a CacheWarning.

    Args:
        cache: Where to keep them.
        key: Made by :func:`tuning_key`.
        choice: The parameters.
    """
    store_record(cache, key, "choice", list(choice))


def tuning_key(kernel: str, effort: str, device: DeviceIdentity) -> Key:
    """Return the key of a kernel's measured parameters.

    Args:
        kernel: All that its speed depends on.
        effort: How thoroughly was measured.
        device: With its driver.
    """
    return keys.tuning_key(kernel, effort, device, _versions())


def load_probes(cache: Cache, device: DeviceIdentity) -> Probes | None:
    """Return the measurements of a device that :func:`store_probes` kept; None if the cache has no sound ones.

    Args:
        cache: Where to look.
        device: With its driver.
    """
    from tflgpu.target.probes import Probes  # of GPUs

    probes = _decoded(cache, keys.probes_key(PROBES_REVISION, device), Probes, "probes", "measurement of a device")
    return probes if probes is not None and probes.is_sound else None


def store_probes(cache: Cache, device: DeviceIdentity, probes: Probes) -> None:
    """Keep the measurements of a device. Faults of the disk are a CacheWarning.

    Args:
        cache: Where to keep them.
        device: With its driver.
        probes: The measurements.
    """
    store_record(cache, keys.probes_key(PROBES_REVISION, device), "probes", encode(probes, []))


def load_unit(cache: Cache, key: Key) -> bool | None:
    """Whether the sums of an integer unit were right; None if the cache does not know."""
    found = cache.load(key)
    right = None if found is None else found.metadata.get("right")
    return right if isinstance(right, bool) else None


def store_unit(cache: Cache, key: Key, right: bool) -> None:
    """Keep whether the sums of an integer unit were right. Faults of the disk are a CacheWarning.

    Args:
        cache: Where to keep it.
        key: Made by :func:`tflgpu.artifact.cache.key.unit_key`.
        right: The outcome of the trial.
    """
    cache.store(key, {}, {"right": right})


def store_record(
    cache: Cache,
    key: Key,
    field: str,
    record: Any,
    blobs: Sequence[Blob] = (),
    others: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Keep a record with a digest that tells whether it is as it was stored. Faults of the disk are a CacheWarning.

    Args:
        cache: Where to keep it.
        key: The entry's.
        field: The name of the record in the entry's metadata.
        record: In types of JSON.
        blobs: The arrays of the record.
        others: Further metadata, which the digest does not cover.
    """
    metadata = {field: record, DIGEST: _digest(record, blobs), **others}
    cache.store(key, {f"blob.{i}": blob for i, blob in enumerate(blobs)}, metadata)


def _decoded(
    cache: Cache, key: Key, kind: type[T], field: str, name: str, check: Callable[[T], None] | None = None
) -> T | None:
    """Return the record of a type in a field of an entry's metadata; None if there is no sound one. name: for the
    warning."""
    found = cache.load(key)
    if found is None:
        return None
    try:
        record, blobs = found.metadata[field], [found.tensors[f"blob.{i}"] for i in range(len(found.tensors))]
        if found.metadata[DIGEST] != _digest(record, blobs):
            raise ValueError("it is not what was stored")
        value = decode(kind, record, blobs)
        if check is not None:
            check(value)
        return value
    except MALFORMED as error:
        warn_once("damaged", f"a cache entry is no {name} ({type(error).__name__}: {error}); it is not used")
        return None


def _digest(record: Any, blobs: Sequence[Blob]) -> str:
    """Return what tells whether a record is as it was stored, which the checksum of a file that was made anew does not.

    The file's checksum covers large blobs, which are weights; to hash them twice would cost a start time.
    """
    hashes = xxhash.xxh3_128(canonical_json(record).encode())
    for blob in blobs:
        hashes.update(f"{blob.nbytes} ".encode())
        if blob.nbytes <= LARGEST_DIGESTED:
            hashes.update(np.ascontiguousarray(blob).data)
    return str(hashes.hexdigest())


def _key(
    token: int,
    content: str,
    options: Options,
    device: DeviceIdentity,
    target: Target,
    shared: Sequence[SharedConstants],
) -> Key:
    matter = _that_matter(options, target)
    if shared:
        matter["shared"] = content_hash(repr([(each.bytes, sorted(each.offsets.items())) for each in shared]).encode())
    return keys.model_key(token, content, matter, device, _versions())


def _that_matter(options: Options, target: Target) -> dict[str, Any]:
    """Return the choices that change what is compiled, as JSON values."""
    return {
        "target": asdict(target),
        "fallback": options.fallback,
        "outputs": options.interface.outputs,
        "signature": options.interface.signature,
        "quantized": options.numerics.quantized,
        "tuning": options.execution.tuning,
        "checks": options.numerics.checks,
        "cpu_ops": list(map(str, options.cpu_part.operators)),
        "batch": options.shapes.batch,
        "input_shapes": options.shapes.inputs,
        "uint8_inputs": options.interface.uint8_inputs,
        "bound": options.interface.bound,
        "tolerance": options.numerics.tolerance,
        "calibration": getattr(options.numerics.calibration, "digest", None),
        **({"half_check": "always"} if options.numerics.half_check == "always" else {}),
    }


def _versions() -> str:
    """Return the versions of tflgpu and of packages that add operators: ``1.2``, or ``1.2, my-operators 0.3``."""
    return ", ".join((_version(), *plugins.versions()))


@cache
def _version() -> str:
    """Return the version of tflgpu; while it is under development, also a digest of its sources."""
    return f"{__version__}+{source_hash(SOURCES)}" if "dev" in __version__ else __version__


def source_hash(folders: Sequence[Path]) -> str:
    """Return the xxh3-128 of the names and contents of modules and templates in some folders.

    Those below a folder of ``APART`` are left out: reading them takes time at every start.
    Time stamps would not do: two trees can have the same, and a checkout makes old sources new.

    Args:
        folders: A missing one counts as empty.
    """
    hashes = xxhash.xxh3_128()
    for folder in folders:
        for name in sorted(_sources(str(folder), APART)):
            with open(name, "rb", buffering=0) as file:
                content = file.read()
            hashes.update(f"{name.removeprefix(str(folder))} {len(content)}\n".encode())
            hashes.update(content)
    return str(hashes.hexdigest())


def _sources(folder: str, apart: Collection[str] = ()) -> Iterator[str]:
    """Yield the paths of modules and templates below a folder. With os.scandir, which takes a third of pathlib's
    time."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name not in apart and entry.name != "__pycache__":
                    yield from _sources(entry.path)
            elif entry.name.endswith((".py", ".j2")):
                yield entry.path
