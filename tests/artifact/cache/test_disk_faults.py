"""The cache on a disk that fails, or of another user: the right answer or a miss, and one warning a cause."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.artifact.cache.damage import KEY, entry, store
from tests.artifact.cache.entries import faulty, model_key, same
from tflgpu.artifact.cache import Cache, evict
from tflgpu.artifact.cache.index import open_index
from tflgpu.artifact.cache.store import STALE_SECONDS
from tflgpu.errors import CacheWarning

pytestmark = pytest.mark.usefixtures("fresh_warnings")


@pytest.fixture
def private_folder() -> Iterator[Path]:
    """A folder of a user who is not root, as that user: permissions mean nothing to root."""
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(folder, 65534, 65534)
        with open_index(folder / "imports"):  # imported now: the interpreter's folder may be closed to that user
            pass
        Cache([folder / "more imports"]).store(KEY, {}, {})
        os.seteuid(65534)
    try:
        yield folder / "cache"
    finally:
        if root:
            os.seteuid(0)
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(folder)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize(
    "function", ["os.fsync", "pathlib.Path.replace", "tempfile.mkstemp", "safetensors.numpy.save_file"]
)
def test_a_failing_disk_costs_the_entry_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int
) -> None:
    cache = Cache([folder])
    store(cache, 1)

    def fail(*_: Any, **__: Any) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(function, fail)
    with pytest.warns(CacheWarning, match=f"cannot be written.*{os.strerror(code)}") as raised:
        store(cache, 0)
        store(cache, 0)
    assert len(raised) == 1
    assert cache.load(KEY) is None
    assert same(cache.load(model_key(1)), model_key(1))
    assert list((folder / "v1" / "tmp").iterdir()) == []
    monkeypatch.undo()
    store(cache, 0)
    assert same(cache.load(KEY), KEY)


def test_a_write_that_stops_in_the_middle(folder: Path) -> None:
    """A disk may be full: the system refuses to make any file longer than 4 kB."""
    cache = Cache([folder])
    store(cache, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.warns(CacheWarning, match="cannot be written"):
            store(cache, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert cache.load(KEY) is None
    assert list((folder / "v1" / "tmp").iterdir()) == []
    assert faulty(cache) == []


def test_a_read_only_directory_is_read(private_folder: Path) -> None:
    store(Cache([private_folder]))
    for path in [private_folder, *private_folder.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    cache = Cache([private_folder])
    assert same(cache.load(KEY), KEY)
    with pytest.warns(CacheWarning, match="no directory of the cache can be written") as raised:
        store(cache, 1)
        store(cache, 2)
    assert len(raised) == 1
    assert same(cache.load(KEY), KEY)
    assert len(evict(cache)) == 0, "nothing could be deleted"


def test_an_entry_that_may_not_be_read(private_folder: Path) -> None:
    cache = Cache([private_folder])
    store(cache)
    entry(private_folder).chmod(0)
    with pytest.warns(CacheWarning, match=r"cannot be read.*Permission denied"):
        assert cache.load(KEY) is None
    store(cache)
    assert same(cache.load(KEY), KEY)


def test_a_directory_that_cannot_be_made(private_folder: Path) -> None:
    private_folder.parent.chmod(0o500)
    cache = Cache([private_folder])
    assert cache.load(KEY) is None
    with pytest.warns(CacheWarning, match="no directory of the cache can be written"):
        store(cache)


def test_a_directory_that_is_removed_meanwhile(folder: Path) -> None:
    cache = Cache([folder])
    store(cache)
    found = cache.load(KEY)
    shutil.rmtree(folder)
    assert same(found, KEY), "what is mapped stays"
    assert cache.load(KEY) is None
    store(cache)
    assert same(cache.load(KEY), KEY)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_comes_back_as_another_users(folder: Path) -> None:
    cache = Cache([folder])
    shutil.rmtree(folder)
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(CacheWarning, match="can be written by other users"):
        store(cache)
    assert cache.load(KEY) is None


def test_what_a_dead_writer_left_is_deleted_when_it_is_old(folder: Path) -> None:
    cache = Cache([folder])
    store(cache)
    old, new = folder / "v1" / "tmp" / "old", folder / "v1" / "tmp" / "new"
    for path in (old, new):
        path.write_bytes(b"half an entry")
    os.utime(old, (time.time() - STALE_SECONDS - 60,) * 2)
    store(cache, 1)
    assert new.exists() and not old.exists()
    assert faulty(cache) == []
