"""``tflgpu show`` at every stage, and after every pass."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, fail, succeed, unsupported_model
from tests.frontend.control_flow.control_models import collatz
from tests.support.models import WITHOUT_KERNEL, Builder
from tests.support.packages import hide_litert
from tests.support.planning import plan_of
from tflgpu.codegen.render import render
from tflgpu.frontend.lower import lower
from tflgpu.model.reader import read_model
from tflgpu.passes import PASSES
from tflgpu.passes.device import passes_for


def kinds(*arguments: object) -> list[str]:
    return [node["kind"] for node in as_json("show", MODEL, *arguments)["nodes"]]


def test_model_is_what_the_file_declares(no_device: None) -> None:
    shown, model = as_json("show", MODEL, "--stage", "model"), read_model(MODEL.read_bytes())
    (subgraph,) = shown["subgraphs"]
    assert [o["code"] for o in subgraph["operators"]] == [o.code for o in model.subgraphs[0].operators]
    assert subgraph["tensors"][subgraph["inputs"][0]]["name"] == "image"
    lines = succeed("show", MODEL, "--stage", "model").splitlines()
    assert any("CONV_2D version 1(t0 1x8x8x1, const " in line for line in lines)
    assert lines[-1].startswith("output t34 ")


def test_each_pass_by_name(no_device: None) -> None:
    graphs = {name: kinds("--stage", "graph", "--after", name) for name in ("lower", *PASSES)}
    assert graphs["lower"] == [n.kind for n in lower(read_model(MODEL.read_bytes())).graph.nodes]
    assert graphs["fuse"].count("map") < graphs["inline_shared_source"].count("map")
    assert graphs["pack_weights"] == kinds()
    changing = [name for before, name in pairwise(graphs) if graphs[before] != graphs[name]]
    assert all(as_json("show", MODEL, "--after", name)["fired"] for name in changing)
    fused = as_json("show", MODEL, "--after", "fuse")["fired"]
    assert {firing["rule"] for firing in fused} == {"fuse_elementwise"}
    assert succeed("show", MODEL, "--after", "fuse").splitlines()[: len(fused)] == [
        line for line in succeed("show", MODEL, "--after", "fuse").splitlines() if line.startswith("applied fuse_")
    ]
    assert "map(" in succeed("show", MODEL, "--after", "lower")


def test_an_unknown_pass_is_answered_with_all_of_them(no_device: None) -> None:
    message = fail("show", MODEL, "--after", "unfold")
    assert all(name in message for name in ("'unfold'", "lower", *PASSES, *passes_for()))


def test_each_pass_for_a_device_by_name(device: tflgpu.Device) -> None:
    """On a CPU; those of other architectures say for which device they are."""
    included = ("portable", "cpu", *(["integers"] if device.integer_unit else []))
    changing = set[str]()
    for name, each in passes_for().items():
        if each.architecture.name in included:
            shown = as_json("show", MODEL, "--after", name)
            assert shown["nodes"]
            changing.update(change["rule"] for change in shown["fired"])
        else:
            assert "convert_layouts" in fail("show", MODEL, "--after", name)
    assert changing and changing <= passes_for().keys()
    nodes = as_json("show", MODEL, "--after", "overwrite_states")["nodes"]
    launches = as_json("show", MODEL, "--stage", "plan")["kernels"]
    assert [node["output"] for node in nodes if not node["in_place"]] == [k["node"]["output"] for k in launches]


def test_after_goes_with_graphs_only() -> None:
    assert "graph" in fail("show", MODEL, "--stage", "plan", "--after", "fuse")


def test_executable(device: tflgpu.Device) -> None:
    shown = as_json("show", MODEL, "--stage", "executable")
    assert [launch["function"] for launch in shown["launches"]] == as_json("show", MODEL, "--stage", "source")[
        "launches"
    ]
    places = [(a["buffer"], a["offset"]) for launch in shown["launches"] for a in launch["arguments"]]
    assert {buffer for buffer, _ in places} <= set(range(len(shown["buffers"])))
    text = succeed("show", MODEL, "--stage", "executable")
    assert all(launch["function"] in text for launch in shown["launches"])


def test_strings_and_missing_inputs_of_a_model_are_shown(tmp_path: Path, no_device: None) -> None:
    builder = Builder()
    x = builder.input((1, 4), name="[x]")
    z = builder.tensor((1, 3))
    builder.add("VAR_HANDLE", [], (1,), "resource", shared_name="state")
    y = builder.add("FULLY_CONNECTED", [x, builder.constant(np.ones((3, 4), np.float32)), -1], (1, 3))
    builder.op("Mystery", [y], [z], custom_options=b"\x01\x02")
    path = tmp_path / "model.tflite"
    path.write_bytes(builder.finish([z]))
    text = succeed("show", path, "--stage", "model")
    assert all(part in text for part in ("shared_name=state", ", absent)", "custom_options=0102", "'[x]'"))
    operators = as_json("show", path, "--stage", "model")["subgraphs"][0]["operators"]
    assert [o["options"].get("custom_options") for o in operators] == [None, None, "0102"]


def test_show_graph_needs_no_device(no_device: None) -> None:
    lines = succeed("show", MODEL).splitlines()
    start = next(i for i, line in enumerate(lines) if "3 CONV_2D, 4 MUL, 5 ADD, 6 ADD" in line)
    assert [line.split(" = ")[1].split("(")[0] for line in lines[start - 2 : start]] == ["add", "relu"]
    graph = as_json("show", MODEL)
    residual = next(n for n in graph["nodes"] if n["operators"] == [3, 4, 5, 6])
    assert residual["steps"][0]["operands"] == ["inputs[3]", "v0"]
    assert graph["tensors"][str(graph["outputs"][0])]["name"] == "probabilities"


@pytest.mark.parametrize("stage", ["graph", "plan", "source", "executable"])
def test_a_model_with_operators_for_the_cpu_is_shown_in_parts(
    device: tflgpu.Device, tmp_path: Path, stage: str
) -> None:
    pytest.importorskip("ai_edge_litert")
    path = unsupported_model(tmp_path / "m.tflite")
    lines = succeed("show", path, "--stage", stage).splitlines()
    assert lines[0] == f"part 0 on the CPU: 0 {WITHOUT_KERNEL}, 1 {WITHOUT_KERNEL}"
    assert lines[2] == "part 1 on the device: 2 RELU"
    parts = as_json("show", path, "--stage", stage)["parts"]
    assert [(part["place"], part["operators"], part["stage"] is None) for part in parts] == [
        ("cpu", [0, 1], True),
        ("device", [2], False),
    ]


def test_a_loop_is_shown_as_its_pieces(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(collatz())
    parts = as_json("show", path)["parts"]
    assert [part["role"] for part in parts] == ["body", "condition", None]
    assert "on the device, body: 0 WHILE" in succeed("show", path)


def test_a_model_that_runs_nowhere_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_litert(monkeypatch)
    assert WITHOUT_KERNEL in fail("show", unsupported_model(tmp_path / "m.tflite"))


def test_show_plan(device: tflgpu.Device) -> None:
    options = tflgpu.Options(precision="fp16")
    expected = plan_of(MODEL.read_bytes(), device.target(options), options)
    plan = as_json("show", MODEL, "--stage", "plan", "--precision", "fp16")
    assert plan["target"]["storage"] == "half"
    assert [k["tiles"] for k in plan["kernels"]] == [k.kernel.tiles for k in expected.kernels]
    places = [a["place"] for k in plan["kernels"] for a in k["arguments"]]
    assert places.count("input") == places.count("output") == 1
    assert all((a["arena_offset"] is None) == (a["place"] != "arena") for k in plan["kernels"] for a in k["arguments"])
    text = succeed("show", MODEL, "--stage", "plan", "--precision", "fp16")
    assert all(k.kernel.template in text for k in expected.kernels)


def test_show_source(device: tflgpu.Device) -> None:
    plan = plan_of(MODEL.read_bytes(), device.target(tflgpu.Options()))
    source = render(plan)
    assert succeed("show", MODEL, "--stage", "source").strip() == source.text.strip()
    assert as_json("show", MODEL, "--stage", "source")["launches"] == list(source.names)
