"""Ray Serve's replicas under 64 clients, one of them killed in the midst of a batch."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.batch.ray_process import output_of
from tests.conftest import missing


@pytest.mark.full("it starts Ray Serve, which takes ten seconds")
def test_no_request_is_lost_or_answered_wrongly(tmp_path: Path) -> None:
    if find_spec("grpc_reflection") is None:  # of what ray[serve] brings; to import ray.serve warns
        missing("Ray Serve")
    out = output_of("tests.batch.serve_session", tmp_path)
    facts = json.loads(out.splitlines()[-1])
    assert facts["killed"] and facts["right"] == facts["asked"]
    # The replica that is killed, which may be the first one, reports no start.
    assert sum("plan" in start for start in facts["starts"]) <= 1, "all but the first start from the cache"
    assert facts["refused"] == [
        "ValueError: the row has no input 'w'; it has ['x']",
        "ValueError: input 'w' is float32 of shape [3]; float32 of shape [2, 3] was expected",
    ]
