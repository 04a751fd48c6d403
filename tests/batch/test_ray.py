"""Workers of Ray: the same rows as in one process, although one of them is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.batch.models import ROWS
from tests.batch.ray_process import output_of


@pytest.mark.full("it starts Ray, which takes ten seconds")
def test_workers_give_what_one_process_gives(tmp_path: Path) -> None:
    out = output_of("tests.batch.ray_session", tmp_path)
    facts = json.loads(out)
    assert facts["killed"]
    assert facts["rows"] == ROWS and facts["ids"], "rows were lost, or came twice, or in another order"
    assert facts["equal"], "columns differ from those of one process"
    assert len(facts["starts"]) == 3, "two workers, and one in place of the killed one"
    assert not any("plan" in start for start in facts["starts"]), "a worker compiled what the cache has"
    assert facts["public"]
    assert facts["evaluated"], "an evaluation's rows differ from those of one process"
    assert facts["failure"] == "there is no column 'nothing' for input 'x'; there are ['id', 'name', 'w', 'x']"
