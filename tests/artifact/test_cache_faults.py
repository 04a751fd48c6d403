"""The disk cache on a disk where everything goes wrong: the right answer or a miss, and one warning for each cause."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import xxhash
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.artifact.entries import metadata_of, model_key, same, tensors_of
from tests.artifact.killing import MODELS, SIZE, compile_all
from tflgpu.artifact.cache import Cache, evict, faults, pack, payload, survey, verify
from tflgpu.artifact.cache.index import LedgerDisk, open_index
from tflgpu.artifact.cache.store import STALE_SECONDS
from tflgpu.errors import CacheWarning

ROOT = Path(__file__).parents[2]
KEY = model_key()

# Rounds of 8 processes that are killed.
ROUNDS = 20


pytestmark = pytest.mark.usefixtures("fresh_warnings")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


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


def store(cache: Cache, number: int = 0) -> None:
    key = model_key(number)
    cache.store(key, tensors_of(key), metadata_of(key))


def entry(folder: Path, number: int = 0) -> Path:
    return folder / "v1" / model_key(number).name


def database(folder: Path) -> Path:
    return folder / "v1" / "index" / "cache.db"


def flip(data: bytes, place: int) -> bytes:
    place %= 8 * len(data)
    return data[: place // 8] + bytes([data[place // 8] ^ 1 << place % 8]) + data[place // 8 + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one byte": lambda data: b"x",
    "sixteen zeros": lambda data: bytes(16),
    "all zeros": lambda data: bytes(len(data)),
    "truncated by one": lambda data: data[:-1],
    "truncated in the header": lambda data: data[:50],
    "half": lambda data: data[: len(data) // 2],
    "extended": lambda data: data + b"\0",
    "twice": lambda data: data * 2,
    "huge header": lambda data: b"\xff" * 8 + data[8:],
    "header is not JSON": lambda data: data[:8] + b"{" * (len(data) - 8),
    "header is a list": lambda data: (2).to_bytes(8, "little") + b"[]",
    "foreign text": lambda data: b"#!/bin/sh\necho this is not an entry\n" * 10,
    "foreign archive": lambda data: b"PK\3\4" + data,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_a_miss_and_one_warning_and_is_replaced(folder: Path, damage: str) -> None:
    cache = Cache([folder])
    store(cache)
    entry(folder).write_bytes(DAMAGE[damage](entry(folder).read_bytes()))
    assert [finding.entry.name for finding in verify(cache)] == [KEY.name]
    with pytest.warns(CacheWarning, match=r"is damaged|is empty") as raised:
        assert cache.load(KEY) is None
        assert cache.load(KEY) is None
    assert len(raised) == 1
    store(cache)
    assert same(cache.load(KEY), KEY)
    assert verify(cache) == []


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
    assert [finding.fault for finding in verify(cache)] == ["is the entry of another key"]
    with pytest.warns(CacheWarning, match="is the entry of another key"):
        assert cache.load(KEY) is None


def test_the_causes_of_warnings_are_counted_one_by_one(folder: Path) -> None:
    cache = Cache([folder])
    for number in range(3):
        store(cache, number)
        entry(folder, number).write_bytes(b"x")
    entry(folder, 3).mkdir()
    with pytest.warns(CacheWarning) as raised:
        assert [cache.load(model_key(n)) for n in range(4)] == [None] * 4
    assert [str(w.message).partition(" (further")[0].split()[-1] for w in raised] == ["anew", f"'{entry(folder, 3)}'"]


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
    """As on a full disk: the system refuses to make any file longer than 4 kB."""
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
    assert verify(cache) == []


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
    assert verify(cache) == []


class Exploit:
    """Unpickling it is seen."""

    unpickled = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _seen, ()


def _seen() -> None:
    Exploit.unpickled = True


def poison(path: Path) -> None:
    """Pickles wherever diskcache would load one: as key, as value, in a file, and as a setting."""
    bomb = pickle.dumps(Exploit())
    (path.parent / "bomb.val").write_bytes(bomb)
    row = "INSERT INTO Cache (key, raw, size, mode, filename, value, access_time, store_time) VALUES (?,?,?,?,?,?,0,0)"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM Cache")
        connection.execute(row, (bomb, 0, 1 << 40, 4, None, bomb))
        connection.execute(row, (KEY.name, 1, 1 << 40, 4, None, bomb))
        connection.execute(row, ("v1/other", 1, 1 << 40, 4, "bomb.val", None))
        connection.execute(row, ("v1/outside", 1, 1 << 40, 2, "../../../precious", None))
        connection.execute("UPDATE Settings SET value = ? WHERE key = 'disk_pickle_protocol'", (bomb,))


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


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def broken_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))


def not_a_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("a file")


def wrong_settings(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO Settings VALUES ('disk_nonsense', 'x')")


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


def killing(folder: Path, rounds: int, seed: int, kill: bool) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.artifact.killing", str(folder), str(rounds), str(seed), str(int(kill))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count: dict[str, int] = json.loads(done.stdout)
    assert count["failed"] == 0, done.stderr
    return count


def test_eight_processes_that_start_cold_leave_one_entry_a_model(folder: Path) -> None:
    assert killing(folder, 1, 0, kill=False) == {"killed": 0, "failed": 0}
    cache = Cache([folder / "0"])
    assert [finding.fault for finding in survey(cache)] == [None] * MODELS
    assert list((folder / "0" / "v1" / "tmp").iterdir()) == []


def test_writers_that_are_killed_leave_a_clean_cache(folder: Path) -> None:
    assert killing(folder, ROUNDS, 1, kill=True)["killed"] > 0, "the test kills nobody: all are done before"
    for number in range(ROUNDS):
        cache = Cache([folder / str(number)])
        assert verify(cache) == []
        compile_all(cache, range(MODELS))  # the next start makes what is missing, and the one after that is warm
        assert all(same(cache.load(model_key(n)), model_key(n), SIZE) for n in range(MODELS))


class DamagedDisk(RuleBasedStateMachine):
    """Loads and stores between all kinds of damage. An answer is right or missing, and a store repairs what was bad."""

    numbers = st.integers(0, 3)

    @initialize()
    def begin(self) -> None:
        faults._reported.clear()
        self.above = Path(tempfile.mkdtemp())
        self.folder = self.above / "cache"
        self.messages: list[str] = []
        self.cache = self.quietly(lambda: Cache([self.folder], limit=1 << 20))

    def teardown(self) -> None:
        assert len(self.messages) == len(faults._reported), "one warning for each cause"
        shutil.rmtree(self.above)

    def quietly(self, do: Callable[[], Any]) -> Any:
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            result = do()
        assert {w.category for w in raised} <= {CacheWarning}
        self.messages += [str(w.message) for w in raised]
        return result

    def files(self) -> list[Path]:
        return sorted(path for path in (self.folder / "v1").glob("*/*.safetensors") if path.is_file())

    @rule(number=numbers)
    def load(self, number: int) -> None:
        found = self.quietly(lambda: self.cache.load(model_key(number)))
        assert found is None or same(found, model_key(number))

    @rule(number=numbers)
    def store_and_load(self, number: int) -> None:
        self.quietly(lambda: store(self.cache, number))
        found = self.quietly(lambda: self.cache.load(model_key(number)))
        assert found is not None and same(found, model_key(number))

    @rule()
    def open_anew(self) -> None:
        self.cache = self.quietly(lambda: Cache([self.folder], limit=1 << 20))

    @precondition(lambda self: self.files())
    @rule(data=st.data(), damage=st.sampled_from(sorted(DAMAGE)))
    def damage_an_entry(self, data: st.DataObject, damage: str) -> None:
        path = data.draw(st.sampled_from(self.files()))
        path.write_bytes(DAMAGE[damage](path.read_bytes()))

    @precondition(lambda self: self.files())
    @rule(data=st.data(), place=st.integers(0, 1 << 20))
    def flip_a_bit(self, data: st.DataObject, place: int) -> None:
        path = data.draw(st.sampled_from(self.files()))
        if path.stat().st_size:
            path.write_bytes(flip(path.read_bytes(), place))

    @precondition(lambda self: self.files())
    @rule(data=st.data())
    def delete_an_entry(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.files())).unlink()

    @precondition(lambda self: len(self.files()) > 1)
    @rule(data=st.data())
    def replace_by_another_entry(self, data: st.DataObject) -> None:
        first, second = data.draw(st.permutations(self.files()))[:2]
        shutil.copyfile(first, second)

    @precondition(lambda self: self.files())
    @rule(data=st.data(), mode=st.sampled_from([0, 0o400, 0o600]))
    def change_a_mode(self, data: st.DataObject, mode: int) -> None:
        data.draw(st.sampled_from(self.files())).chmod(mode)

    @precondition(lambda self: database(self.folder).is_file())
    @rule(damage=st.sampled_from([garbage, broken_pages, not_a_folder, wrong_settings, poison]))
    def damage_the_index(self, damage: Callable[[Path], None]) -> None:
        with suppress(sqlite3.Error):  # it may be too damaged for more
            damage(database(self.folder))

    @precondition(lambda self: (self.folder / "v1").is_dir())
    @rule(name=st.sampled_from(["tmp", "index", "models", "."]))
    def remove_a_folder(self, name: str) -> None:
        shutil.rmtree(self.folder / "v1" / name, ignore_errors=True)

    @precondition(lambda self: (self.folder / "v1" / "models").is_dir())
    @rule(name=st.sampled_from(["notes.txt", "0.safetensors", "ü"]))
    def put_a_stranger(self, name: str) -> None:
        (self.folder / "v1" / "models" / name).write_text("a stranger")

    @rule(token=st.none() | numbers)
    def evict(self, token: int | None) -> None:
        self.quietly(lambda: evict(self.cache, token=token))
        left = {path.name for path in self.files()} - {"0.safetensors"}
        assert not any(token is None or name.startswith(f"{token:016x}") for name in left)


DamagedDisk.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestDamagedDisk = DamagedDisk.TestCase
