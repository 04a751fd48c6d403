"""Which cases a run of the suite leaves out, for what it says at its end. Workers leave it for that process."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import branches


def _file() -> Path:
    return Path(os.environ[branches.FOLDER]).with_suffix(".left_out")


def note(everything: Sequence[pytest.Item], kept: Sequence[pytest.Item]) -> None:
    """Note how many cases of each test are not kept."""
    counts = Counter(item.nodeid.partition("[")[0] for item in {*everything} - {*kept})
    own = _file().with_suffix(f".{os.getpid()}")
    own.write_text(json.dumps([len(everything), counts]))
    own.replace(_file())


def lines() -> list[str]:
    """One for all, and one for each folder of tests."""
    if not _file().exists():
        return []
    total, counts = json.loads(_file().read_text())
    _file().unlink()
    folders = Counter[str]()
    for test, count in counts.items():
        folders[test.partition("::")[0].rpartition("/")[0]] += count
    left = sum(counts.values())
    return [
        f"{left} of {total} cases ({len(counts)} tests); pytest --all runs them",
        *(f"{count:5} {folder}" for folder, count in folders.most_common()),
    ]
