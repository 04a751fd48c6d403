"""A few rounds of what the scripts of this folder do for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifact import damaged_caches, replaced_models


@pytest.mark.usefixtures("fresh_warnings")
def test_damaged_caches_give_right_answers_and_one_warning(tmp_path: Path) -> None:
    assert damaged_caches.run(tmp_path, 12, 1) == []


def test_a_file_that_is_replaced_all_the_time_leaves_no_wrong_entry(tmp_path: Path) -> None:
    found, compiled, _ = replaced_models.faults(tmp_path, 5)
    assert found == [] and compiled > 1
