"""Files that another user, or an attacker with a right checksum, puts into a cache are misses with one warning."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import xxhash

from tests.artifact.cache.damage import KEY, entry, store
from tests.artifact.cache.entries import model_key, same, stored
from tflgpu.artifact.cache import Cache, evict, pack, payload, survey
from tflgpu.artifact.cache.directory import open_own
from tflgpu.errors import CacheDirectoryError, CacheWarning

pytestmark = pytest.mark.usefixtures("fresh_warnings")

LEVELS = ("v1", "v1/models", f"v1/{KEY.name}")


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file or folder, and nothing else, belong to another user."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1, follow_symlinks=False)
        return
    number, fstat = path.lstat().st_ino, os.fstat

    def other(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        return os.stat_result((*found[:4], 12345, *found[5:10])) if found.st_ino == number else found

    monkeypatch.setattr(os, "fstat", other)


@pytest.mark.parametrize("level", LEVELS)
def test_what_belongs_to_another_user_is_not_used(folder: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache([folder])
    store(cache)
    give_away(folder / level, monkeypatch)
    with pytest.warns(CacheWarning, match="belongs to another user") as raised:
        assert cache.load(KEY) is None
        assert cache.load(KEY) is None
    assert len(raised) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_what_another_user_can_write_is_not_used(folder: Path, level: str) -> None:
    cache = Cache([folder])
    store(cache)
    (folder / level).chmod(0o777)
    with pytest.warns(CacheWarning, match="can be written by other users") as raised:
        assert cache.load(KEY) is None
    assert len(raised) == 1
    (folder / level).chmod(0o700)
    assert same(cache.load(KEY), KEY)


@pytest.mark.parametrize("level", LEVELS)
def test_no_link_is_followed(folder: Path, tmp_path: Path, level: str) -> None:
    """Neither to read, nor to list, to delete or to write."""
    cache = Cache([folder])
    store(cache)
    shutil.move(folder / level, tmp_path / "elsewhere")
    (folder / level).symlink_to(tmp_path / "elsewhere")
    before = sorted(path.name for path in (tmp_path / "elsewhere").rglob("*"))
    with pytest.warns(CacheWarning) as raised:
        assert cache.load(KEY) is None
        assert stored(cache) == set()
        if level != LEVELS[-1]:
            evict(cache)
        store(cache)
    assert len(raised) <= 1
    assert sorted(path.name for path in (tmp_path / "elsewhere").rglob("*")) == before
    assert (cache.load(KEY) is not None) == (level == LEVELS[-1]), "an entry is replaced, a folder is not"


def test_a_link_in_place_of_the_temporary_folder_loses_no_file(folder: Path, tmp_path: Path) -> None:
    cache = Cache([folder])
    store(cache)
    (folder / "v1" / "tmp").rmdir()
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "old").write_text("precious")
    os.utime(tmp_path / "documents" / "old", (0, 0))
    (folder / "v1" / "tmp").symlink_to(tmp_path / "documents")
    with pytest.warns(CacheWarning, match="follows no links"):
        store(cache, 1)
    assert [path.name for path in (tmp_path / "documents").iterdir()] == ["old"]


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/{path.name}")  # its own path is too long
        os.close(here)


SPECIAL = [os.mkfifo, make_socket, Path.mkdir, lambda path: path.symlink_to("/dev/zero")]


@pytest.mark.parametrize("make", SPECIAL, ids=["fifo", "socket", "folder", "device"])
def test_what_is_no_file_is_a_miss_and_nothing_waits_for_it(folder: Path, make: Callable[[Path], None]) -> None:
    cache = Cache([folder])
    store(cache)
    entry(folder).unlink()
    make(entry(folder))
    with pytest.warns(CacheWarning) as raised:
        assert cache.load(KEY) is None
        assert cache.load(KEY) is None
    assert len(raised) == 1
    assert [finding.fault is not None for finding in survey(cache)] == [True]
    store(cache)
    assert same(cache.load(KEY), KEY)


@pytest.mark.parametrize("name", ["cache.db", "cache.db-wal", "cache.db-journal"])
@pytest.mark.parametrize("make", SPECIAL[:1] + SPECIAL[2:], ids=["fifo", "folder", "device"])
def test_what_is_no_file_in_place_of_the_index(folder: Path, name: str, make: Callable[[Path], None]) -> None:
    cache = Cache([folder])
    store(cache)
    (folder / "v1" / "index" / name).unlink(missing_ok=True)
    make(folder / "v1" / "index" / name)
    with pytest.warns(CacheWarning, match="its files are counted instead") as raised:
        store(cache, 1)
    assert len(raised) == 1
    store(cache, 2)
    assert all(same(cache.load(model_key(n)), model_key(n)) for n in range(3))


def test_a_fifo_in_place_of_a_bundle(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "models.bundle")
    with pytest.warns(CacheWarning, match="is no regular file"):
        assert Cache([tmp_path / "models.bundle"]).load(KEY) is None


def test_a_bundle_of_another_user(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(Cache([folder]))
    pack(Cache([folder]), tmp_path / "models.bundle")
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    give_away(tmp_path / "models.bundle", monkeypatch)
    with pytest.raises(CacheDirectoryError, match="belongs to another user"):
        Cache([tmp_path / "models.bundle"])


def test_files_are_closed(folder: Path) -> None:
    store(Cache([folder]))
    before = len(os.listdir("/proc/self/fd"))
    for names in (("v1", *KEY.name.split("/")), ("v1", "models", "none"), ("v1", "models")):
        with suppress(OSError, payload.UnreadableError):
            os.close(open_own(folder, names))
    assert len(os.listdir("/proc/self/fd")) == before


def sealed(header: object, data: bytes = b"") -> bytes:
    """An entry with a right checksum. data: of the tensors but the checksum."""
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + data
    return content + xxhash.xxh3_128_digest(content)


def forged(**tensors: dict[str, object]) -> dict[str, object]:
    """A header with these tensors, the checksum behind 8 bytes of data, and the right key."""
    description = payload.canonical_json({"version": 1, "key": json.loads(KEY.text), "metadata": {}})
    checksum = {"dtype": "U8", "shape": [16], "data_offsets": [8, 24]}
    return {"__metadata__": {payload.DESCRIPTION: description}, **tensors, payload.CHECKSUM: checksum}


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "U8", "shape": [4, -1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 1 << 40]}},
        {"a": {"dtype": "U8", "shape": [4], "data_offsets": [-4, 0]}},
        {"a": {"dtype": "U8", "shape": [7], "data_offsets": [0, 7]}},
        {n: {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]} for n in "ab"},
    ],
    ids=["inferred", "inferred part", "outside", "before", "hole", "overlapping"],
)
def test_tensors_that_are_not_side_by_side_are_refused(tensors: dict[str, dict[str, object]]) -> None:
    good = {"a": {"dtype": "U8", "shape": [2, 4], "data_offsets": [0, 8]}}
    assert payload.read(memoryview(sealed(forged(**good), bytes(8)))).tensors["a"].shape == (2, 4)
    with pytest.raises(payload.UnreadableError, match="is not an entry of this cache"):
        payload.read(memoryview(sealed(forged(**tensors), bytes(8))))


def test_a_huge_header_is_refused_before_it_is_parsed(folder: Path) -> None:
    cache = Cache([folder])
    store(cache)
    text = b"[" + b"[]," * (payload.LARGEST_HEADER // 3) + b"0]"
    content = len(text).to_bytes(8, "little") + text
    entry(folder).write_bytes(content + xxhash.xxh3_128_digest(content))
    tracemalloc.start()
    with pytest.warns(CacheWarning, match="is not an entry"):
        assert cache.load(KEY) is None
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_an_entry_with_too_much_metadata_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "LARGEST_HEADER", 4096)
    cache = Cache([folder])
    with pytest.warns(CacheWarning, match="cannot be written: a header of"):
        cache.store(KEY, {"a": np.zeros(1)}, {"text": "x" * 4096})
    assert stored(cache) == set()
