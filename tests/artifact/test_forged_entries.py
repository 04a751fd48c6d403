"""Entries that somebody forged, with the right key and checksum: their memory is checked before it is bound."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.safety.models import scaled
from tflgpu.artifact import serializer
from tflgpu.artifact.cache import Cache, Key, directory
from tflgpu.artifact.records import Blob, decode, encode
from tflgpu.model.model_source import ModelContent
from tflgpu.options import CacheFiles, Options
from tflgpu.runtime.opencl.build import _key as kernel_key
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session

X = np.ones((1, 2, 2, 4), np.float32)

pytestmark = pytest.mark.usefixtures("fresh_warnings")


def stored(options: Options) -> tuple[Cache, Key]:
    """A cache with the model y = 2 x, and its key there."""
    device = tflgpu.compile(scaled(2.0), options).device
    cache = serializer.open_cache(options)
    assert cache is not None
    return cache, serializer.model_key(ModelContent(scaled(2.0)), options, device.identity, device.target(options))


def part(record: dict[str, Any], name: str) -> Any:
    """The first item of a list in the record of the only executable."""
    return record["partitions"][0]["executable"][name][0]


def persistent(order: list[int], end: int) -> dict[str, Any]:
    runs = [{"is": "PersistentRun", "function": "f", "begin": 0, "end": end}]
    return {"is": "Persistent", "runs": runs, "local_size": 1, "order": order, "clock": False}


FORGERIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "slot behind its buffer": lambda r: part(r, "launches")["arguments"][0].update(offset=1 << 40),
    "slot before its buffer": lambda r: part(r, "launches")["arguments"][0].update(offset=-1),
    "slot of no buffer": lambda r: part(r, "launches")["arguments"][0].update(buffer=99),
    "negative buffer": lambda r: part(r, "launches")["arguments"][0].update(buffer=-1),
    "groups": lambda r: part(r, "launches").update(groups=1 << 70),
    "input behind its buffer": lambda r: part(r, "inputs").update(offset=1 << 40),
    "input too large": lambda r: part(r, "inputs").update(shape=[1 << 20, 1 << 20]),
    "negative sizes": lambda r: part(r, "outputs").update(shape=[-2, -8]),
    "output of no buffer": lambda r: part(r, "outputs").update(buffer=99),
    "small buffer": lambda r: part(r, "buffers").update(bytes=1),
    "no bytes": lambda r: part(r, "buffers").update(bytes=0),
    "results of no buffer": lambda r: r["partitions"][0]["executable"].update(results=99),
    "state of no buffer": lambda r: r["partitions"][0]["executable"].update(
        states=[{"is": "StateBuffer", "buffer": 99, "next": None, "initial": None}]
    ),
    "order": lambda r: r["partitions"][0]["executable"].update(persistent=persistent([1 << 40], end=1)),
    "places of no launch": lambda r: r["partitions"][0]["executable"].update(persistent=persistent([0], end=1 << 30)),
    "a binary many times": lambda r: r["partitions"][0]["binaries"].extend(1000 * r["partitions"][0]["binaries"]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_memory_outside_of_buffers_is_a_miss(forgery: str, tmp_path: Path) -> None:
    options = Options(precision="fp32", cache_files=CacheFiles(path=tmp_path))
    cache, key = stored(options)
    blobs: list[Blob] = []
    record = encode(serializer.load(cache, key), blobs)
    FORGERIES[forgery](record)
    serializer.store_record(cache, key, "artifact", record, blobs)
    with pytest.warns(tflgpu.CacheWarning, match="a cache entry is no compiled model") as raised:
        model = tflgpu.compile(scaled(2.0), options)
    assert len(raised) == 1 and "plan" in model.seconds
    np.testing.assert_array_equal(model.run(X)["y"], 2 * X)
    assert "plan" not in tflgpu.compile(scaled(2.0), options).seconds


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value within nested lists and mappings, of lists to the first two."""
    if path:
        yield path
    for step in value if isinstance(value, dict) else range(min(2, len(value))) if isinstance(value, list) else ():
        yield from places_in(value[step], (*path, step))


def mutations(value: Any) -> list[Any]:
    """Other values for a field."""
    match value:
        case bool():
            return [not value, "x"]
        case int():
            return [-1, 0, value + 1, 1 << 40, None, 1.5]
        case str():
            return ["", value + "x", 3]
        case list():
            return [[], value + value, value[:-1], {}]
        case dict():
            return [{}, None, dict(list(value.items())[1:])]
    return [0, "x", [], {}]


def test_any_field_is_a_right_answer_or_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """An entry of another digest is not what was stored, and nor is one without a digest."""
    options = Options(precision="fp32", cache_files=CacheFiles(path=tmp_path))
    cache, key = stored(options)
    blobs: list[Blob] = []
    record = encode(serializer.load(cache, key), blobs)
    blobs = [blob.copy() for blob in blobs]  # the file is replaced
    known = cache.load(key)
    assert known is not None
    digest = {serializer.DIGEST: known.metadata[serializer.DIGEST]}
    rng = random.Random(5)
    places = [*places_in(record)]
    for path in rng.sample(places, min(len(places), 200 if pytestconfig.getoption("all") else 25)):
        changed = copy.deepcopy(record)
        *way, last = path
        parent = reduce(lambda value, step: value[step], way, changed)
        parent[last] = rng.choice(mutations(parent[last]))
        kept = digest if rng.random() < 0.9 else {}
        cache.store(key, {f"blob.{i}": blob for i, blob in enumerate(blobs)}, {"artifact": changed, **kept})
        monkeypatch.setattr(directory, "_reported", {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tflgpu.CacheWarning)
            model = tflgpu.compile(scaled(2.0), options)
        results = model.run(X)
        assert np.array_equal(results["y"], 2 * X), path


def test_the_binary_of_another_program_is_not_used(tmp_path: Path, device_name: str) -> None:
    """In the entry of the model and in that of the kernel."""
    options = Options(precision="fp16", device=device_name, cache_files=CacheFiles(path=tmp_path))
    cache, key = stored(options)
    artifact = serializer.load(cache, key)
    assert artifact is not None
    session = open_session(choose(device_name))
    source = artifact.partitions[0].source  # type: ignore[union-attr]
    name = artifact.partitions[0].executable.launches[0].function  # type: ignore[union-attr]
    from tflgpu.runtime.opencl.program import binaries_of, compile_program

    other = binaries_of(compile_program(session.context, source.replace(name, "another")))
    blobs: list[Blob] = []
    record = encode(artifact, blobs)
    blobs[record["partitions"][0]["binaries"][0]["blob"]] = np.frombuffer(other[0], np.uint8)
    serializer.store_record(cache, key, "artifact", record, blobs)
    cache.store(kernel_key(source, session), {"binary.0": np.frombuffer(other[0], np.uint8)}, {})
    with pytest.warns(tflgpu.CacheWarning, match="it is compiled anew") as raised:
        model = tflgpu.compile(scaled(2.0), options)
    assert len(raised) == 1
    assert model.report.half is not None  # it was checked anew
    np.testing.assert_array_equal(model.run(X)["y"], 2 * X)
    assert "plan" not in tflgpu.compile(scaled(2.0), options).seconds


def test_a_blob_is_used_once() -> None:
    blobs = [np.zeros(8, np.uint8)]
    with pytest.raises(KeyError):
        decode(tuple[bytes, ...], [{"blob": 0}, {"blob": 0}], blobs)
