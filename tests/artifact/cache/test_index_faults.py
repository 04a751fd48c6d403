"""The index of a cache that is damaged, poisoned, lost or locked: it is made anew from the files."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.artifact.cache.damage import (
    KEY,
    Exploit,
    broken_pages,
    database,
    entry,
    garbage,
    not_a_folder,
    poison,
    store,
    wrong_settings,
)
from tests.artifact.cache.entries import model_key, same
from tflgpu.artifact.cache import Cache, evict, survey
from tflgpu.artifact.cache.index import LedgerDisk, open_index
from tflgpu.errors import CacheWarning

pytestmark = pytest.mark.usefixtures("fresh_warnings")


def test_a_poisoned_index_is_not_unpickled_and_deletes_nothing(folder: Path) -> None:
    cache = Cache([folder], limit=1 << 20)
    store(cache)
    poison(database(folder))
    (folder.parent / "precious").write_text("not the cache's")
    store(cache, 1)  # the index says that the limit is passed: it is compared with the files
    evict(cache, token=5)
    assert same(cache.load(KEY), KEY) and same(cache.load(model_key(1)), model_key(1))
    assert (folder.parent / "precious").exists()
    assert not Exploit.unpickled


def test_the_poison_works(folder: Path) -> None:
    """Against diskcache's own Disk: the test above is not idle."""
    import diskcache

    with diskcache.Cache(folder / "plain") as plain:
        plain.set("a", 1)
        bomb = pickle.dumps(Exploit())
        with closing(sqlite3.connect(folder / "plain" / "cache.db")) as connection, connection:
            connection.execute("UPDATE Cache SET mode = 4, value = ?", (bomb,))
        plain.get("a")
    assert Exploit.unpickled
    Exploit.unpickled = False


@pytest.mark.parametrize(
    "use",
    [
        lambda disk: disk.put(("a", "tuple")),
        lambda disk: disk.put(b"bytes"),
        lambda disk: disk.get(pickle.dumps(Exploit()), False),
        lambda disk: disk.get(pickle.dumps(Exploit()), True),
        lambda disk: disk.store({"a": "mapping"}, False),
        lambda disk: disk.store("text", False),
        lambda disk: disk.fetch(4, None, pickle.dumps(Exploit()), False),
        lambda disk: disk.fetch(4, "bomb.val", None, False),
        lambda disk: disk.fetch(2, "bomb.val", None, False),
        lambda disk: disk.fetch(1, None, pickle.dumps(Exploit()), False),
    ],
)
def test_the_index_takes_and_gives_no_pickle(tmp_path: Path, use: Callable[[LedgerDisk], object]) -> None:
    (tmp_path / "bomb.val").write_bytes(pickle.dumps(Exploit()))
    with pytest.raises((TypeError, ValueError)):
        use(LedgerDisk(str(tmp_path)))
    assert not Exploit.unpickled


@pytest.mark.parametrize("damage", [garbage, broken_pages, not_a_folder, wrong_settings])
def test_a_damaged_index_is_made_anew_from_the_files(folder: Path, damage: Callable[[Path], None]) -> None:
    cache = Cache([folder])
    for number in range(3):
        store(cache, number)
    damage(database(folder))
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        for number in range(3, 6):
            store(cache, number)
    assert [w.category for w in raised] in ([], [CacheWarning])
    assert all(same(cache.load(model_key(n)), model_key(n)) for n in range(6))
    with open_index(folder / "v1" / "index") as (index, new):
        assert not new
        assert index.volume() > sum(finding.entry.bytes for finding in survey(cache))


def test_a_missing_index_is_made_anew_from_the_files(folder: Path) -> None:
    cache = Cache([folder])
    for number in range(3):
        store(cache, number)
    shutil.rmtree(folder / "v1" / "index")
    store(cache, 3)
    with open_index(folder / "v1" / "index") as (index, new):
        assert not new
        assert index.volume() > sum(finding.entry.bytes for finding in survey(cache))


def test_a_locked_index_neither_blocks_nor_stops_eviction(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflgpu.artifact.cache.index.TIMEOUT", 0.1)
    cache = Cache([folder], limit=30_000)
    for number in range(10):
        store(cache, number)
        os.utime(entry(folder, number), (number, number))
    with closing(sqlite3.connect(database(folder))) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        begin = time.monotonic()
        with pytest.warns(CacheWarning, match="its files are counted instead"):
            for number in range(10, 15):
                store(cache, number)
                os.utime(entry(folder, number), (number, number))
        assert time.monotonic() - begin < 5
        connection.execute("ROLLBACK")
    names = {finding.entry.name for finding in survey(cache)}
    kept = 30_000 // entry(folder, 14).stat().st_size
    assert 1 < kept < 5 and names == {model_key(n).name for n in range(15 - kept, 15)}
