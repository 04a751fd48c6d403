"""Operators that the device cannot take run on LiteRT's interpreter, in as few pieces as the dependencies allow."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.conftest import missing
from tests.support.models import WITHOUT_KERNEL, Builder
from tflgpu.frontend.partition import Partition, partition
from tflgpu.model.model import Subgraph
from tflgpu.model.reader import read_model

Interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter


@pytest.fixture(autouse=True)
def _device() -> None:
    if not tflgpu.devices():
        missing("an OpenCL device")


def sandwich() -> bytes:
    """Two branches, each device, CPU, device: its middle has no kernel for the device."""
    builder = Builder()
    x = builder.input((1, 4, 5, 6), name="x")
    ends = []
    for branch in range(2):
        factor = builder.constant(np.full(6, 2.0 + branch, np.float32))
        scaled = builder.add("MUL", [x, factor], name=f"scaled{branch}")
        ends.append(builder.add("TANH", [builder.without_kernel(builder.without_kernel(scaled))], name=f"end{branch}"))
    return builder.finish([builder.add("ADD", ends, (1, 4, 5, 6), name="total")])


def test_branches_are_cut_once_each_way() -> None:
    subgraph = read_model(sandwich()).subgraphs[0]
    capable = {o.index for o in subgraph.operators if o.code != WITHOUT_KERNEL}
    partitions = partition(subgraph, capable, subgraph.inputs, subgraph.outputs)
    assert [p.on_device for p in partitions] == [True, False, True]
    assert [len(p.operators) for p in partitions] == [2, 4, 3]


def test_a_model_in_pieces_gives_the_right_answer(device_name: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 5, 6)).astype(np.float32)
    options = tflgpu.Options(precision="fp32", device=device_name)
    words = rf"^4 of \d+ operators run on the CPU, .* in each run:\n  {WITHOUT_KERNEL}: {WITHOUT_KERNEL} has no kernel"
    with pytest.warns(tflgpu.FallbackWarning, match=words):
        model = tflgpu.compile(sandwich(), options)
    np.testing.assert_allclose(model.run(x)["total"], np.tanh(2 * x) + np.tanh(3 * x), rtol=1e-5, atol=1e-6)
    report = model.report
    assert report.partitions == 2
    assert [o.device for o in report.operators].count("cpu") == 4
    assert report.crossing_bytes == 4 * x.nbytes
    assert len(model.profile(x).kernels) == report.kernels


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_outputs_are_arrays_of_their_own(device_name: str) -> None:
    """One is an input of the model, two are one tensor, and one is a single number, of which LiteRT makes no array."""
    builder = Builder()
    x, number = builder.input((4,), name="x"), builder.input((), "int8", name="number")
    result = builder.without_kernel(x, name="y")
    least = builder.add("MINIMUM", [number, number], (), "int8")
    model = tflgpu.compile(builder.finish([x, result, result, least]), tflgpu.Options(device=device_name))
    given = np.ones(4, np.float32)
    found = [given, *model.run([given, np.array(1, np.int8)]).values()]
    assert len(found) == 5
    assert not any(np.shares_memory(a, b) for a, b in combinations(found, 2))


def test_fallback_can_be_forbidden() -> None:
    with pytest.raises(tflgpu.UnsupportedError, match=f"{WITHOUT_KERNEL} has no kernel") as refused:
        tflgpu.compile(sandwich(), tflgpu.Options(fallback="forbid"))
    assert len(refused.value.reasons) == 4


def test_constants_are_computed_on_both_sides() -> None:
    """A float16 weight behind DEQUANTIZE that device and CPU both read does not cross."""
    builder = Builder()
    x, y = builder.input((2, 3), name="x"), builder.input((2, 3), "int32", name="y")
    half = builder.constant(np.arange(6, dtype=np.float16).reshape(2, 3))
    single = builder.add("DEQUANTIZE", [half], (2, 3), name="single")
    whole = builder.add("CAST", [single], (2, 3), "int32")
    mixed = builder.add("BITWISE_XOR", [whole, y], (2, 3), "int32", name="mixed")
    total = builder.add("ADD", [x, single], (2, 3), name="total")
    with pytest.warns(tflgpu.FallbackWarning):
        options = tflgpu.Options(precision="fp32", cpu_part=tflgpu.CpuPart(operators=["BITWISE_XOR"]))
        model = tflgpu.compile(builder.finish([total, mixed]), options)
    outputs = model.run([np.ones((2, 3), np.float32), np.full((2, 3), 5, np.int32)])
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(outputs["total"], expected + 1)
    np.testing.assert_array_equal(outputs["mixed"], expected.astype(np.int32) ^ 5)
    assert model.report.crossing_bytes == 0


def stateful() -> tuple[Subgraph, dict[str, int]]:
    """A variable between a RELU and a TANH; its new value is the old one behind a NEG, plus the RELU's result."""
    builder = Builder()
    x = builder.input((1, 4), name="x")
    names = ("y", "old", "negative", "new", "end")
    t = {name: builder.tensor((1, 4), name=name) for name in names}
    handle = builder.add("VAR_HANDLE", [], (1,), "resource", name="handle", shared_name="state")
    builder.op("READ_VARIABLE", [handle], [t["old"]])
    builder.op("RELU", [x], [t["y"]])
    builder.op("NEG", [t["old"]], [t["negative"]])
    builder.op("ADD", [t["negative"], t["y"]], [t["new"]], {"fused_activation_function": "NONE"})
    builder.op("ASSIGN_VARIABLE", [handle, t["new"]], [])
    builder.op("TANH", [t["old"]], [t["end"]])
    return read_model(builder.finish([t["end"]])).subgraphs[0], t


def test_what_uses_a_variable_waits_for_all_that_it_needs() -> None:
    """READ_VARIABLE could run at once, but not on the device without the ADD, which needs the CPU's result."""
    subgraph, t = stateful()
    partitions = partition(subgraph, {0, 1, 3, 4, 5, 6}, subgraph.inputs, subgraph.outputs)
    assert partitions == (
        Partition(False, (2,), subgraph.inputs, (t["y"],)),
        Partition(True, (0, 1, 3, 4, 5, 6), (t["y"],), subgraph.outputs),
    )


def test_what_lies_between_reading_and_assigning_goes_along() -> None:
    subgraph, t = stateful()
    partitions = partition(subgraph, {0, 1, 2, 4, 5, 6}, subgraph.inputs, subgraph.outputs)
    assert partitions == (
        Partition(True, (2,), subgraph.inputs, (t["y"],)),
        Partition(False, (0, 1, 3, 4, 5), (t["y"],), (t["old"],)),
        Partition(True, (6,), (t["old"],), subgraph.outputs),
    )


def test_a_real_detector_has_one_partition(shared: Path) -> None:
    """coco_ssd: its post-processing is left to the CPU by an option; the best detection is LiteRT's."""
    from PIL import Image

    path = shared / "models" / "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"
    image = np.asarray(Image.open(shared / "images" / "cat.png").convert("RGB").resize((300, 300)))[None]
    with pytest.warns(tflgpu.FallbackWarning, match="TFLite_Detection_PostProcess"):
        model = tflgpu.compile(
            path, tflgpu.Options(precision="fp32", cpu_part=tflgpu.CpuPart(operators=["TFLite_Detection_PostProcess"]))
        )
    assert model.report.partitions == 1
    assert [o.code for o in model.report.operators if o.device == "cpu"] == ["TFLite_Detection_PostProcess"]
    boxes, classes, scores, _ = model.run(image).values()
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    expected = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    assert classes[0, 0] == expected[1][0, 0]
    assert abs(scores[0, 0] - expected[2][0, 0]) < 0.05
    np.testing.assert_allclose(boxes[0, 0], expected[0][0, 0], atol=0.05)
