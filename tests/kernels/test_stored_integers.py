"""Layers whose weights stay integers in device memory, against products in double."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.quick import on_first_runtime
from tests.support.integer_weights import draw, layer, take_from_memory
from tests.support.limited_devices import Simulation, limited
from tests.support.models import Builder
from tests.support.planning import graph_of, plan_of, taking, templates
from tests.support.running import run_plan
from tflgpu.kernels.packing import integers_of
from tflgpu.target import Limits, Target

pytest.importorskip("ai_edge_litert")

TOLERANCES = {"fp32": 1e-6, "fp16": 1e-3}  # of the greatest result


@dataclass(frozen=True)
class Layer:
    """block: inputs of a scale, 0 for one scale an output channel. tile: sharers and rows of a work-group on GPUs."""

    rows: int
    depth: int
    out: int
    bits: int
    block: int = 0
    tile: tuple[int, int] = (128, 1)


LAYERS = (
    Layer(1, 300, 70, 8, tile=(32, 1)),
    Layer(3, 45, 33, 8, tile=(128, 2)),
    Layer(1, 30, 5, 4),
    Layer(2, 129, 100, 4, tile=(128, 2)),
    Layer(1, 192, 70, 4, block=32),
    Layer(3, 256, 37, 4, block=64, tile=(128, 4)),
    Layer(1, 512, 48, 8, block=256, tile=(64, 1)),
    Layer(1, 4800, 34, 4, block=32),
    Layer(1, 9300, 17, 8),
)


def drawn(case: Layer, bias: bool = True) -> tuple[bytes, NDArray[Any], NDArray[Any]]:
    """The model, its input, and the result in double. Some channels have scales of zero."""
    random = np.random.default_rng(case.depth)
    weights = draw(random, (case.out, case.depth), case.bits, case.block)
    weights.scales[::7] = 0
    added = random.standard_normal(case.out).astype(np.float32) if bias else None
    x = random.standard_normal((case.rows, case.depth)).astype(np.float32)
    expected = x.astype(np.float64) @ weights.values.T + (0 if added is None else added.astype(np.float64))
    return layer(weights, case.rows, added), x, expected


def check(found: NDArray[Any], expected: NDArray[Any], precision: str, depth: int) -> None:
    """The error of a float sum grows with the root of ``depth``, the number of products."""
    tolerance = TOLERANCES[precision] * max(1.0, depth / 512) ** 0.5
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.fixture
def far_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    take_from_memory(monkeypatch)


@pytest.mark.quick(when=lambda case, device_name: case in LAYERS[1::3] and on_first_runtime(device_name))
@pytest.mark.usefixtures("far_weights")
@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_layers_are_right(case: Layer, kernels: Literal["cpu", "gpu"], device_name: str) -> None:
    model, x, expected = drawn(case, bias=case.depth != 192)
    execution = tflgpu.Execution(kernels=kernels, executor="launch")
    choose = taking(**{"fully_connected": case.tile} if kernels == "gpu" else {})
    precision: Literal["fp16", "fp32"]
    for precision in ("fp32", "fp16"):
        options = tflgpu.Options(
            device=device_name, precision=precision, execution=execution, cache="off", fallback="forbid"
        )
        with limited(device_name, Simulation()) as device:  # whose local memory is real
            plan = plan_of(model, device.target(options), options, choose)
            assert any(a.type in ("char", "uchar") for k in plan.kernels for a in k.arguments)
            (found,) = run_plan(plan, [x], device)
        check(found, expected, precision, case.depth)


CPU = Target(family="cpu", compute_units=2, storage="float", limits=Limits(vector_width=8))

MANY_ROWS = (
    Layer(31, 300, 70, 8),
    Layer(100, 129, 33, 4),
    Layer(23, 192, 130, 4, block=32),
    Layer(40, 4096, 17, 8),
    Layer(40, 4800, 17, 8),
)


@pytest.mark.quick(when=lambda case, device_name: case == MANY_ROWS[2] and on_first_runtime(device_name))
@pytest.mark.usefixtures("far_weights")
@pytest.mark.parametrize("case", MANY_ROWS, ids=str)
def test_many_rows_unpack_weights_once_for_a_tile(case: Layer, device_name: str) -> None:
    model, x, expected = drawn(case)
    for precision in ("fp32", "fp16"):
        options = tflgpu.Options(device=device_name, precision=precision, cache="off", fallback="forbid")
        with tflgpu.compile(model, options) as compiled:
            if compiled.device.type == "cpu":
                assert ("unpacked[" in compiled.source) == (case.depth <= 4096)
            (found,) = compiled.run([x]).values()
        check(found, expected, precision, case.depth)


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("storage", ["float", "half"])
@pytest.mark.parametrize(("bits", "block"), [(8, 0), (4, 32)])
def test_cpus_read_the_same_weights_for_all_numbers_of_rows(
    bits: int, block: int, storage: Literal["float", "half"], width: Literal[8, 16]
) -> None:
    """So that signatures share them."""
    target = replace(CPU, storage=storage, limits=Limits(vector_width=width))
    found = set[bytes]()
    for rows in (1, 2, 7, 20, 128):
        weights = draw(np.random.default_rng(0), (1456, 1024), bits, block)
        arguments = [a for k in plan_of(layer(weights, rows, None), target).kernels for a in k.arguments]
        found.add(b"".join(a.data.tobytes() for a in arguments if a.name in ("weights", "scales")))
    assert len(found) == 1


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("together", [1, 2])
def test_scales_of_blocks_are_never_one_for_each_element(bits: int, together: int) -> None:
    """together: neighbouring blocks that have the same scale in all rows, and so are one."""
    weights = draw(np.random.default_rng(4), (70, 192), bits, 32)
    if together == 2:
        weights.scales[:, 1::2] = weights.scales[:, ::2]
    weights.scales[5] = 0
    graph = graph_of(layer(weights, 1, None))
    (node,) = graph.nodes
    tensor = graph[node.inputs[1]]
    assert tensor.scale is not None and tensor.scale.shape == (70, 6)
    found = integers_of(tensor, 70)
    assert found is not None and (found.block, found.bits) == (32 * together, bits)
    np.testing.assert_array_equal(found.scales, weights.scales[:, ::together])
    np.testing.assert_array_equal(found.integers, np.where(np.arange(70)[:, None] == 5, 0, weights.integers))


def stored(model: bytes, target: Target) -> list[tuple[str, int]]:
    """The types of weights, and their bytes."""
    arguments = [a for k in plan_of(model, target).kernels for a in k.arguments if a.name in ("weights", "right")]
    return [(a.type, a.bytes) for a in arguments]


@pytest.mark.parametrize(
    ("rows", "bits", "block", "expected"),
    [
        (1, 8, 0, ("char", 1)),
        (1, 4, 0, ("char", 1 / 2)),
        (4, 4, 128, ("char", 1 / 2)),
        (128, 8, 0, ("char", 1)),
    ],
)
def test_weights_are_packed_where_memory_decides(rows: int, bits: int, block: int, expected: tuple[str, float]) -> None:
    model, _, _ = drawn(Layer(rows, 1024, 1536, bits, block))
    ((element, size),) = stored(model, CPU)
    assert element == expected[0]
    assert expected[1] <= size / (1024 * 1536) < 1.1 * expected[1]


def test_weights_that_stay_in_a_cache_are_floats() -> None:
    model, _, _ = drawn(Layer(1, 128, 128, 8))
    assert [element for element, _ in stored(model, CPU)] == ["float"]


def test_halves_stay_halves() -> None:
    random = np.random.default_rng(0)
    for dtype, expected in ((np.float16, "half"), (np.float32, "float")):
        builder = Builder()
        x = builder.input((1, 1024))
        weights = builder.constant(random.standard_normal((1536, 1024)).astype(dtype).astype(np.float32))
        model = builder.finish([builder.add("FULLY_CONNECTED", [x, weights], (1, 1536))])
        assert [element for element, _ in stored(model, CPU)] == [expected]


@pytest.mark.parametrize("storage", ["float", "half"])
@pytest.mark.parametrize("rows", [1, 2, 5, 8])
def test_gpus_read_integers_of_few_rows(rows: int, storage: Literal["float", "half"]) -> None:
    for units in (4, 132):
        target = Target(family="gpu", compute_units=units, storage=storage)
        for bits, block in ((8, 0), (4, 32)):
            model, _, _ = drawn(Layer(rows, 512, 512, bits, block))
            assert templates(plan_of(model, target))[0] == "portable/vector_product"
            ((element, size),) = stored(model, target)
            assert (element, size) == ("char", 512 * 512 * bits // 8)
