"""Faults of all kinds one after another, at random, and writers that are killed."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.artifact.cache.damage import (
    DAMAGE,
    broken_pages,
    database,
    flip,
    garbage,
    not_a_folder,
    poison,
    store,
    wrong_settings,
)
from tests.artifact.cache.entries import faulty, model_key, same
from tests.artifact.cache.killing import MODELS, SIZE, compile_all
from tflgpu.artifact.cache import Cache, directory, evict, survey
from tflgpu.errors import CacheWarning

pytestmark = pytest.mark.usefixtures("fresh_warnings")
ROOT = Path(__file__).parents[3]
# Rounds of 8 processes that are killed.
ROUNDS = 20


def killing(folder: Path, rounds: int, seed: int, kill: bool) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.artifact.cache.killing", str(folder), str(rounds), str(seed), str(int(kill))],
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
        assert faulty(cache) == []
        compile_all(cache, range(MODELS))  # the next start makes what is missing, and the one after that is warm
        assert all(same(cache.load(model_key(n)), model_key(n), SIZE) for n in range(MODELS))


class DamagedDisk(RuleBasedStateMachine):
    """Loads and stores between all kinds of damage. An answer is right or missing, and a store repairs what was bad."""

    numbers = st.integers(0, 3)

    @initialize()
    def begin(self) -> None:
        directory._reported.clear()
        self.above = Path(tempfile.mkdtemp())
        self.folder = self.above / "cache"
        self.messages: list[str] = []
        self.cache = self.quietly(lambda: Cache([self.folder], limit=1 << 20))

    def teardown(self) -> None:
        assert len(self.messages) == len(directory._reported), "one warning for each cause"
        shutil.rmtree(self.above)

    def quietly(self, do: Callable[[], Any]) -> Any:
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            result = do()
        # From Python 3.13 on, connections of diskcache that garbage collection closes are ResourceWarnings.
        assert {w.category for w in raised} <= {CacheWarning, ResourceWarning}
        self.messages += [str(w.message) for w in raised if w.category is CacheWarning]
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
