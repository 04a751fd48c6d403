"""The options of a compilation on the command line: the same for every verb that runs a model."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import NoReturn, get_args

import numpy as np
import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, fail, invoke, succeed
from tflgpu.checking.option_declarations import choices_of, flat_names
from tflgpu.cli import VERBS
from tflgpu.cli.arguments import PARAMETERS, compile_options
from tflgpu.model.writer import ModelBuilder

HELPS = {place.declared.help for place in flat_names(tflgpu.Options).values()}


@pytest.mark.parametrize("verb", ["run", "predict", "benchmark", "profile"])
def test_verbs_that_run_a_model_have_the_same_options(verb: str) -> None:
    own = inspect.signature(VERBS[verb]).parameters
    assert "options" not in own
    assert {name: own[name] for name in PARAMETERS} == PARAMETERS
    assert list(own)[-1] == "as_json", "the help ends with what concerns the form"


def test_defaults_and_choices_are_those_of_the_declarations() -> None:
    assert compile_options(MODEL, {name: p.default for name, p in PARAMETERS.items()}) == tflgpu.Options()
    for name, place in flat_names(tflgpu.Options).items():
        if name in PARAMETERS and (choices := choices_of(place.field)):
            assert get_args(get_args(PARAMETERS[name].annotation)[0]) == choices


def test_no_command_repeats_what_is_declared() -> None:
    """The help of an option is written in tflgpu/options.py alone."""
    for path in sorted(Path(tflgpu.cli.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in HELPS, path


def test_operators_for_the_cpu_are_codes_indices_and_ranges() -> None:
    chosen = compile_options(MODEL, {"cpu_ops": ["SOFTMAX, 12", "60-65"]}).cpu_part.operators
    assert chosen == ("SOFTMAX", 12, range(60, 66))


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """y = x + 1 and z = y * 3, with a free first axis, under two signatures."""
    builder = ModelBuilder()
    x = builder.input((1, 4), name="x", shape_signature=(-1, 4))
    one, three = (builder.constant(np.array([value], np.float32)) for value in (1, 3))
    y, z = (builder.tensor((1, 4), name=name, shape_signature=(-1, 4)) for name in "yz")
    builder.op("ADD", [x, one], [y])
    builder.op("MUL", [y, three], [z])
    path = tmp_path / "sums.tflite"
    path.write_bytes(builder.finish([z], signature="triple"))
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32)[None])
    np.save(tmp_path / "two.npy", np.arange(8, dtype=np.float32).reshape(2, 4))
    return path


def test_run_takes_signature_outputs_batch_and_executor(device: tflgpu.Device, sums: Path) -> None:
    arguments = ("run", sums, sums.with_name("two.npy"), "--batch", 2, "--signature", "triple", "--executor", "launch")
    found = as_json(*arguments, "--outputs", "y", "--outputs", "z")["outputs"]
    assert [(o["name"], o["shape"], o["maximum"]) for o in found] == [("y", [2, 4], 8.0), ("z", [2, 4], 24.0)]
    assert "signature 'none'" in fail("run", sums, sums.with_name("x.npy"), "--signature", "none")
    assert "no tensor" in fail("run", sums, sums.with_name("x.npy"), "--outputs", "none")


def test_run_leaves_operators_to_the_cpu(device: tflgpu.Device, sums: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    arguments = ("run", sums, sums.with_name("x.npy"), "--cache", "off")
    result = invoke(*arguments, "--cpu-ops", "0,MUL")
    assert result.exit_code == 0, result.output
    assert "warning" in result.stderr and "ADD" in result.stderr and "MUL" in result.stderr
    assert result.stdout == succeed(*arguments)


@pytest.mark.parametrize("verb", ["run", "benchmark", "profile"])
def test_options_reach_the_compiler(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tflgpu.Options] = []

    def compile(_: Path, options: tflgpu.Options) -> NoReturn:
        given.append(options)
        raise ValueError("this is far enough")

    monkeypatch.setattr(tflgpu, "compile", compile)
    files = [tmp_path / "x.npy"] if verb == "run" else []
    assert "far enough" in fail(verb, MODEL, *files, "--batch", 8, "--cpu-ops", "ADD", "--cache-dir", tmp_path)
    assert given == [
        tflgpu.Options(
            shapes=tflgpu.Shapes(batch=8),
            cpu_part=tflgpu.CpuPart(operators=["ADD"]),
            cache_files=tflgpu.CacheFiles(path=[tmp_path]),
        )
    ]
