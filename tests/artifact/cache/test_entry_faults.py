"""Damaged entries and bundles are a miss, and one warning for each cause."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from tests.artifact.cache.damage import DAMAGE, KEY, entry, flip, store
from tests.artifact.cache.entries import faulty, model_key, same
from tflgpu.artifact.cache import Cache, pack, payload, survey
from tflgpu.errors import CacheWarning

pytestmark = pytest.mark.usefixtures("fresh_warnings")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_a_miss_and_one_warning_and_is_replaced(folder: Path, damage: str) -> None:
    cache = Cache([folder])
    store(cache)
    entry(folder).write_bytes(DAMAGE[damage](entry(folder).read_bytes()))
    assert [finding.entry.name for finding in faulty(cache)] == [KEY.name]
    with pytest.warns(CacheWarning, match=r"is damaged|is empty") as raised:
        assert cache.load(KEY) is None
        assert cache.load(KEY) is None
    assert len(raised) == 1
    store(cache)
    assert same(cache.load(KEY), KEY)
    assert faulty(cache) == []


@pytest.mark.parametrize("head", [True, False])
def test_a_sparse_file_of_a_tebibyte_is_a_miss_at_once(folder: Path, head: bool) -> None:
    cache = Cache([folder])
    store(cache)
    with entry(folder).open("r+b") as file:
        file.truncate(None if head else 0)
        file.truncate(1 << 40)
    begun = time.process_time()
    with pytest.warns(CacheWarning, match="is damaged"):
        assert cache.load(KEY) is None
    assert time.process_time() - begun < 5


def test_every_flipped_bit_is_found(folder: Path) -> None:
    cache = Cache([folder])
    cache.store(KEY, {"weights": np.arange(5, dtype=np.float32)}, {})
    good = entry(folder).read_bytes()
    assert payload.read(memoryview(good), KEY.text).key == KEY.text
    for place in range(8 * len(good)):
        with pytest.raises(payload.UnreadableError):
            payload.read(memoryview(flip(good, place)), KEY.text)


def test_a_sound_entry_in_the_place_of_another_is_a_miss(folder: Path) -> None:
    cache = Cache([folder])
    store(cache, 0)
    store(cache, 1)
    shutil.copyfile(entry(folder, 1), entry(folder, 0))
    assert [finding.fault for finding in faulty(cache)] == ["is the entry of another key"]
    with pytest.warns(CacheWarning, match="is the entry of another key"):
        assert cache.load(KEY) is None


def test_the_causes_of_warnings_are_counted_one_by_one(folder: Path) -> None:
    cache = Cache([folder])
    for number in range(3):
        store(cache, number)
        entry(folder, number).write_bytes(b"x")
    store(cache, 3)
    entry(folder, 3).chmod(0o666)
    with pytest.warns(CacheWarning) as raised:
        assert [cache.load(model_key(n)) for n in range(4)] == [None] * 4
    assert ["is damaged" in str(w.message) for w in raised] == [True, False]


def test_damaged_bundles(folder: Path, tmp_path: Path) -> None:
    """Bits of the headers and of the archive's directory, and some of the entry."""
    cache, bundle = Cache([folder]), tmp_path / "models.bundle"
    store(cache)
    pack(cache, bundle)
    good = bundle.read_bytes()
    begin, end = 8 * 200, 8 * good.index(b"PK\1\2")
    places = [*range(0, begin, 3), *range(begin, end, 999), *range(end, 8 * len(good), 2)]
    damaged = [flip(good, place) for place in places]
    damaged += [good[:cut] for cut in range(0, len(good), 99)] + [b"", b"not a bundle", good + bytes(70000)]
    for data in damaged:
        bundle.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            opened = Cache([bundle])
            found = opened.load(KEY)
            survey(opened)
        assert found is None or same(found, KEY)


HOSTILE = [None, -1, 1 << 70, float("inf"), True, "x", [], {}, [-1, 5], [5, 1], [0, 1 << 64], "[[", '{"version":1e999}']


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value within nested lists and mappings."""
    yield path
    for step in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places_in(value[step], (*path, step))


def test_a_wrong_header_with_a_right_checksum_raises_nothing(folder: Path) -> None:
    """No accident makes such a file. Whether one is used is not the question here, only that nothing breaks."""
    cache = Cache([folder])
    store(cache)
    good = entry(folder).read_bytes()
    length = int.from_bytes(good[:8], "little")
    header, data = json.loads(good[8 : 8 + length]), good[8 + length : -16]
    for path in places_in(header):
        for hostile in HOSTILE:
            changed = {"": json.loads(json.dumps(header))}
            *way, last = ("", *path)
            parent: Any = changed
            for step in way:
                parent = parent[step]
            if parent[last] == hostile:
                continue
            parent[last] = hostile
            text = json.dumps(changed[""]).encode()
            content = len(text).to_bytes(8, "little") + text + data
            entry(folder).write_bytes(content + xxhash.xxh3_128_digest(content))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CacheWarning)
                cache.load(KEY)
                survey(cache)


def test_a_missing_bundle_and_one_of_another_format(tmp_path: Path, folder: Path, monkeypatch) -> None:
    with pytest.warns(CacheWarning, match=r"the bundle .* cannot be read"):
        assert Cache([tmp_path / "models.bundle"]).load(KEY) is None
    cache = Cache([folder])
    store(cache)
    with monkeypatch.context() as older:
        older.setattr("tflgpu.artifact.cache.bundle.FORMAT_FOLDER", "v0")
        pack(cache, tmp_path / "models.bundle")
    with pytest.warns(CacheWarning, match="holds entries of format v0, and this tflgpu reads v1") as raised:
        assert Cache([tmp_path / "models.bundle"]).load(KEY) is None
    assert len(raised) == 1
