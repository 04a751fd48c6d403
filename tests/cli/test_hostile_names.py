"""Names that try to steer the terminal: every verb shows them as escapes, and takes no markup from them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.cli.command import invoke
from tests.support.models import Builder
from tflgpu.artifact.cache import payload
from tflgpu.artifact.cache.key import FORMAT_FOLDER, canonical_json, entry_name
from tflgpu.model.text import printable

# It turns red, writes over the line, closes a tag of rich, begins a line, and reverses what follows.
HOSTILE = "\x1b[31m[bold]\r[/]\n\u202e"
SHOWN = printable(HOSTILE)

STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def hostile_model(path: Path, *middle: str) -> Path:
    """A convolution and one operator, all of whose names are hostile."""
    builder = Builder(description=HOSTILE)
    x = builder.input((1, 2, 2, 4), name=f"{HOSTILE}x")
    weights = builder.constant(np.ones((4, 1, 1, 4), np.float32), name=f"{HOSTILE}w")
    bias, z = builder.constant(np.zeros(4, np.float32), name=HOSTILE), builder.tensor((1, 2, 2, 4), name=HOSTILE)
    y = builder.add(
        "CONV_2D", [x, weights, bias], (1, 2, 2, 4), name=f"{HOSTILE}y", padding="SAME", stride_h=1, stride_w=1
    )
    for code in middle:
        builder.op(code, [y], [z], custom_options=HOSTILE.encode())
    path.write_bytes(builder.finish([z if middle else y]))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with hostile names, and with hostile text in them."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile_model(folder / "model\x1b[31m[bold].tflite")
    hostile_model(folder / "custom.tflite", f"{HOSTILE}Operator")
    np.save(folder / "x\x1b[31m[bold].npy", np.zeros((1, 2, 2, 4), np.float32))
    (folder / "labels\x1b[31m[bold].txt").write_text("\n".join(["\x1b[31m[bold]one"] * 16))
    key = canonical_json({"kind": "model", "token": "0" * 16, "device": HOSTILE, "driver": ["\x1b[31m"]})
    entry = folder / "cache" / FORMAT_FOLDER / entry_name(key)
    entry.parent.mkdir(parents=True, mode=0o700)
    payload.write(entry, key, {}, {})
    (entry.parent / "stranger\x1b[31m[bold]\n.safetensors").write_bytes(b"")
    return folder


@pytest.mark.device
@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("inspect {model\x1b[31m[bold].tflite} --device auto --operators", f"{SHOWN}y"),
        ("inspect {model\x1b[31m[bold].tflite} --signature {none}", "model\\x1b[31m[bold].tflite"),
        ("inspect {custom.tflite}", "\\x1b[31m[bold]"),
        ("run {model\x1b[31m[bold].tflite} {x\x1b[31m[bold].npy} --output {out\x1b[31m}", "wrote "),
        ("run {model\x1b[31m[bold].tflite} {x\x1b[31m[bold].npy} --labels {labels\x1b[31m[bold].txt}", f"{SHOWN}y"),
        ("run {custom.tflite} {x\x1b[31m[bold].npy}", "Operator"),
        (
            "benchmark {model\x1b[31m[bold].tflite} --runs 1 --min-secs 0 --warmup-min-secs 0 --cache off",
            "model\\x1b[31m[bold].tflite",
        ),
        ("profile {model\x1b[31m[bold].tflite} --runs 1 --trace {trace\x1b[31m}", "trace\\x1b[31m"),
        ("diff {model\x1b[31m[bold].tflite} --runs 1 --bisect", f"{SHOWN}y"),
        ("show {model\x1b[31m[bold].tflite} --stage model", "[bold]"),
        ("show {custom.tflite} --stage model", f"{SHOWN}Operator"),
        ("show {model\x1b[31m[bold].tflite} --stage graph", "[bold]"),
        ("show {model\x1b[31m[bold].tflite} --stage plan", "target"),
        ("show {model\x1b[31m[bold].tflite} --stage executable", "buffer 0"),
        ("cache ls --cache-dir {cache}", "\\x1b[31m[bold]"),
        ("cache verify --cache-dir {cache}", "stranger\\x1b[31m[bold]"),
    ],
)
def test_no_name_steers_the_terminal(command: str, shows: str, folder: Path) -> None:
    if command.startswith("diff"):
        pytest.importorskip("ai_edge_litert")
    result = invoke(*(str(folder / word.strip("{}")) if word.startswith("{") else word for word in command.split(" ")))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    text = result.stdout + result.stderr
    assert STEERS.findall(text) == []
    assert shows in text


@pytest.mark.device
def test_a_name_is_given_as_in_the_file_or_as_it_is_shown(folder: Path) -> None:
    model = tflgpu.compile(folder / "model\x1b[31m[bold].tflite", tflgpu.Options(cache="off"))
    x = np.ones((1, 2, 2, 4), np.float32)
    assert [info.name for info in model.inputs] == [f"{SHOWN}x"]
    for name in (f"{SHOWN}x", f"{HOSTILE}x"):
        (y,) = model.run({name: x}).values()
        np.testing.assert_array_equal(y, np.full((1, 2, 2, 4), 4, np.float32))


def test_json_has_the_names_too(folder: Path) -> None:
    result = invoke("inspect", folder / "custom.tflite", "--json")
    assert json.loads(result.stdout)["operators"][1]["code"] == f"{SHOWN}Operator"
