"""The service on Ray Serve, over HTTP: with its proxy in Python, and with HAProxy."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.batch.ray_process import SETTINGS
from tests.conftest import missing
from tests.examples.page import COMMANDS, environment


@pytest.mark.full("it starts Ray Serve, which takes ten seconds")
@pytest.mark.parametrize("proxy", ["python", "haproxy"])
def test_the_service_answers_over_http(proxy: str, folder: Path) -> None:
    if find_spec("grpc_reflection") is None:  # of what ray[serve] brings; to import ray.serve warns
        missing("Ray Serve")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = SETTINGS | {"RAY_SERVE_ENABLE_HA_PROXY": str(int(proxy == "haproxy"))}
    command = [sys.executable, *shlex.split(COMMANDS["serving/ray_service.py"])[1:], "--port", str(port)]
    options = ("--try", "images/cat.png", "--replicas", "1")
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=environment() | settings,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (answer,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"label"'))
    assert answer["label"] == "Egyptian cat"
    assert answer["probability"] == pytest.approx(0.486, abs=5e-3)
