"""Attention as one kernel: right results, wherever its operands lie, and only where nothing else needs the scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.kernels.networks import binary, number
from tests.ops import reference
from tests.ops.case import Net, Tensor
from tests.quick import on_first_runtime
from tests.support.corrections import divide_keys
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import kinds, plan_of, templates
from tests.support.row_cases import (
    Heads,
    attention,
    attention_of_images,
    attention_of_projections,
    computed,
    layer,
    reshaped,
)
from tests.support.running import run_checked
from tests.support.targets import CPU, GPU
from tflgpu.kernels.attention import Attention

Family = Literal["cpu", "gpu"]

# Rows and keys in whole vectors and blocks and not, one head and several, a mask of keys, of rows too, and of neither.
PLAIN = (
    Heads((2, 3), 16, 32, 8, 8, (2, 1, 1, 32)),
    Heads((5,), 9, 21, 4, 12, ()),
    Heads((1,), 40, 300, 12, 20, (40, 300)),
    Heads((3,), 33, 600, 64, 32, (3, 1, 600)),
    Heads((2, 2), 130, 7, 4, 4, (1, 2, 130, 7)),
    Heads((1, 2), 17, 1030, 8, 4, (1, 1, 1, 1030)),
    Heads((2, 3), 1, 70, 8, 8, (2, 1, 1, 70)),
    Heads((5,), 3, 261, 64, 12, ()),
    Heads((2,), 7, 300, 12, 20, (7, 300)),
)
PROJECTED = (
    Heads((2, 3), 19, 19, 8, 8, (2, 1, 1, 19)),
    Heads((4, 2), 33, 33, 12, 12, ()),
    Heads((1, 4), 100, 100, 4, 4, (100, 100)),
    Heads((2, 3), 21, 21, 10, 10, ()),  # no whole vec4s: layers make them larger
)


def assert_right(net: Net, device_name: str, family: Family, precision: Literal["fp32", "fp16"]) -> None:
    with limited(device_name, Simulation()):
        source = run_checked(net.case(), device=device_name, kernels=family, precision=precision)
    assert "attention" in source


def is_quick(heads: Heads, device_name: str) -> bool:
    return heads in (PLAIN[0], PLAIN[-2], PROJECTED[0]) and on_first_runtime(device_name)


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("heads", PLAIN, ids=str)
def test_of_tensors_with_an_axis_of_heads(heads: Heads, family: Family, device_name: str) -> None:
    net = Net(seed=heads.rows)
    y = attention(net, heads, *(computed(net, shape) for shape in heads.shapes))
    net.output(binary(net, "ADD", y, net.input(net.normal(y.shape))))
    assert_right(net, device_name, family, "fp32" if heads.rows % 2 else "fp16")


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("heads", PROJECTED, ids=str)
def test_of_heads_that_are_parts_of_rows(heads: Heads, family: Family, device_name: str) -> None:
    """Nothing moves them: the layers before and behind it, the mask and one kernel are all there is."""
    net = Net(seed=heads.rows)
    net.output(attention_of_projections(net, heads))
    assert not any("strided" in template or "matmul" in template for template in templates_on_cpu(net))
    assert_right(net, device_name, family, "fp32" if heads.rows % 2 else "fp16")


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("heads", PROJECTED, ids=str)
def test_of_heads_that_are_channels_of_an_image(heads: Heads, family: Family, device_name: str) -> None:
    """Three layers are one convolution, whose result attention reads from where it is, and nothing moves."""
    net = Net(seed=heads.rows)
    net.output(attention_of_images(net, heads))
    found = templates_on_cpu(net)
    assert not any("strided" in template or "matmul" in template for template in found)
    assert sum("depthwise" in t or "convolution" in t for t in found) == 4
    assert_right(net, device_name, family, "fp32" if heads.rows % 2 else "fp16")


@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("masked", [-1e9, float(np.finfo(np.float32).min), -np.inf])
def test_masked_keys_weigh_nothing(masked: float, family: Family, device_name: str) -> None:
    """Also those of a whole block. Where no key is left, all weigh the same, unless they are infinitely far."""
    heads, rng = Heads((2,), 17, 700, 4, 4, ()), np.random.default_rng(1)
    mask = np.where(rng.random((2, 1, 700)) < 0.5, 0, np.float32(masked))
    mask[0, :, :600] = masked
    if np.isfinite(masked):
        mask[1] = masked
    net = Net(seed=1)
    q, k, v = (net.input(net.normal(shape)) for shape in heads.shapes)
    scores = (q.value @ np.swapaxes(k.value, 1, 2)).astype(np.float32) + mask
    weights = reference.softmax(scores.astype(np.float64))
    y = attention(net, heads, q, k, v, mask)
    net.output(y)
    case = net.case()
    options = tflgpu.Options(
        device=device_name, execution=tflgpu.Execution(kernels=family), precision="fp32", cache="off"
    )
    with limited(device_name, Simulation()):
        (got,) = tflgpu.compile(case.model, options).run(case.inputs).values()
    np.testing.assert_allclose(got, weights @ v.value, atol=1e-5)


@pytest.mark.parametrize("family", ["cpu", "gpu"])
def test_a_mask_that_half_cannot_hold_still_hides_all(family: Family, device_name: str) -> None:
    """It is computed, and stored as the least half. A row without keys has the mean of all values, as in float."""
    heads = Heads((1,), 16, 40, 4, 4, ())
    net = Net(seed=1)
    q, k, v = (net.input(net.normal(shape, 3)) for shape in heads.shapes)
    mask = binary(net, "MUL", net.input(np.full((1, 1, 40), -1e9, np.float32)), number(net, 2))
    scores = net.op("ADD", [product(net, q, k), mask], np.zeros((1, 16, 40)), activation="NONE")
    weights = softmax(net, scores)
    net.output(net.op("BATCH_MATMUL", [weights, v], weights.value @ v.value))
    case = net.case()
    options = tflgpu.Options(
        device=device_name, execution=tflgpu.Execution(kernels=family), precision="fp16", cache="off"
    )
    compiled = tflgpu.compile(case.model, options)
    assert "attention" in compiled.source
    (got,) = compiled.run(case.inputs).values()
    np.testing.assert_allclose(got, case.expected[0], atol=1e-2)


@pytest.mark.quick(when=lambda family, device_name: on_first_runtime(device_name))
@pytest.mark.parametrize("family", ["cpu", "gpu"])
def test_a_mask_of_relative_positions(family: Family, device_name: str) -> None:
    """It is computed behind the scores, for rows and columns of keys apart, and moved to their shape."""
    net = Net(seed=1)
    q, k, v = (computed(net, (2, size, 8)) for size in (20, 12, 12))
    scores = product(net, q, k)
    mask = binary(net, "ADD", computed(net, (2, 20, 4, 1)), computed(net, (2, 20, 1, 3)))
    weights = softmax(net, binary(net, "ADD", scores, reshaped(net, mask, (2, 20, 12))))
    net.output(net.op("BATCH_MATMUL", [weights, v], weights.value @ v.value))
    assert not any("matmul" in template for template in templates_on_cpu(net))
    assert_right(net, device_name, family, "fp32")


def whose_weights_are_an_output(net: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = softmax(net, product(net, q, k))
    net.output(weights)
    return net.op("BATCH_MATMUL", [weights, v], weights.value @ v.value)


def of_sharper_scores(net: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = product(net, q, k)
    weights = net.op("SOFTMAX", [scores], reference.softmax(scores.value, 2), {"beta": 2.0})
    return net.op("BATCH_MATMUL", [weights, v], weights.value @ v.value)


def scaled_behind_the_mask(net: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = binary(net, "ADD", product(net, q, k), net.constant(net.normal((1, 1, 12))))
    weights = softmax(net, binary(net, "MUL", scores, number(net, 0.5)))
    return net.op("BATCH_MATMUL", [weights, v], weights.value @ v.value)


def of_functions_of_scores(net: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = product(net, q, k)
    weights = softmax(net, net.op("TANH", [scores], np.tanh(scores.value)))
    return net.op("BATCH_MATMUL", [weights, v], weights.value @ v.value)


def of_weights_on_the_right(net: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights, turned = softmax(net, product(net, q, k)), computed(net, (2, 8, 12))
    return net.op("BATCH_MATMUL", [turned, weights], turned.value @ weights.value)


def product(net: Net, q: Tensor, k: Tensor) -> Tensor:
    return net.op("BATCH_MATMUL", [q, k], q.value @ np.swapaxes(k.value, -1, -2), {"adj_x": False, "adj_y": True})


def softmax(net: Net, x: Tensor) -> Tensor:
    return net.op("SOFTMAX", [x], reference.softmax(x.value), {"beta": 1.0})


@pytest.mark.parametrize(
    "build",
    [
        whose_weights_are_an_output,
        of_sharper_scores,
        scaled_behind_the_mask,
        of_functions_of_scores,
        of_weights_on_the_right,
    ],
    ids=lambda build: build.__name__,
)
def test_anything_else_stays_as_it_is(build: Callable[[Net, Tensor, Tensor, Tensor], Tensor], device_name: str) -> None:
    net = Net(seed=1)
    net.output(build(net, *(computed(net, (2, 12, 8)) for _ in range(3))))
    assert "attention" not in run_checked(net.case(), device=device_name)


@pytest.mark.parametrize("depth", [6, 1024])
def test_depths_that_kernels_cannot_have_are_products(depth: int) -> None:
    heads = Heads((2,), 20, 20, depth, 8, ())
    net = Net(seed=1)
    net.output(attention(net, heads, *(computed(net, shape) for shape in heads.shapes)))
    assert not any("attention" in template for template in templates_on_cpu(net))


def templates_on_cpu(net: Net) -> list[str]:
    return templates(plan_of(net.case().model, CPU))


@dataclass(frozen=True)
class Groups:
    """A cache of keys and values for some heads, each of which serves a group of queries."""

    heads: int
    group: int
    rows: int
    keys: int
    depth: int
    is_turned: bool = False

    def __str__(self) -> str:
        return f"{self.heads}x{self.group}-{self.rows}x{self.keys}-{self.depth}{'-turned' * self.is_turned}"


GROUPED = (
    Groups(3, 8, 1, 45, 8),
    Groups(1, 9, 1, 1030, 4),
    Groups(2, 3, 1, 33, 12, is_turned=True),
    Groups(4, 1, 1, 70, 64),
    Groups(2, 4, 19, 40, 8),
)


def attention_of_groups(net: Net, g: Groups) -> Tensor:
    """A decoder's: keys and values are repeated for each query of a group, as converters write it.

    is_turned: whether the heads of the queries lie the other way round, those of all groups first.
    """
    heads = g.heads * g.group
    q, k, v = (
        computed(net, (1, rows, n, g.depth)) for rows, n in ((g.rows, heads), (g.keys, g.heads), (g.keys, g.heads))
    )
    order = net.integers([0, 2, 1, 3])
    q = net.op("TRANSPOSE", [q, order], q.value.transpose(0, 2, 1, 3))
    repeated = []
    for x in (k, v):
        x = net.op("TRANSPOSE", [x, order], x.value.transpose(0, 2, 1, 3))
        places = (1, 1, g.heads, g.keys, g.depth) if g.is_turned else (1, g.heads, 1, g.keys, g.depth)
        shape = (1, g.group, g.heads, g.keys, g.depth) if g.is_turned else (1, g.heads, g.group, g.keys, g.depth)
        x = reshaped(net, x, places)
        x = net.op("BROADCAST_TO", [x, net.integers(shape)], np.broadcast_to(x.value, shape))
        repeated.append(reshaped(net, x, (1, heads, g.keys, g.depth)))
    y = attention(net, Heads((1, heads), g.rows, g.keys, g.depth, g.depth, (1, 1, g.rows, g.keys)), q, *repeated)
    y = net.op("TRANSPOSE", [y, order], y.value.transpose(0, 2, 1, 3))
    return layer(net, reshaped(net, y, (g.rows, heads * g.depth)), 8)


@pytest.mark.quick(when=lambda groups, device_name: groups in GROUPED[:2] and on_first_runtime(device_name))
@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("groups", GROUPED, ids=str)
def test_groups_of_queries_read_keys_where_they_are(groups: Groups, family: Family, device_name: str) -> None:
    """Nothing repeats them, and one row of each query of a group is a matrix."""
    net = Net(seed=groups.keys)
    net.output(attention_of_groups(net, groups))
    plan = plan_of(net.case().model, CPU if family == "cpu" else GPU)
    (found,) = (k.node.attributes for k in plan.kernels if isinstance(k.node.attributes, Attention))
    as_rows = groups.rows == 1 and not groups.is_turned
    assert (found.heads, found.rows) == (
        (groups.heads, groups.group) if as_rows else (groups.heads * groups.group, groups.rows)
    )
    assert "matmul" not in kinds(plan)
    assert kinds(plan).count("map") == (3 if groups.rows == 1 else 4)  # of a mask of several rows, which is an input
    assert_right(net, device_name, family, "fp32" if groups.rows % 2 else "fp16")


@pytest.mark.quick(when=lambda heads, device_name: heads.rows == 1 and on_first_runtime(device_name))
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(
    "heads",
    [Heads((3,), 1, 130, 16, 12, (1, 1, 130)), Heads((2, 1), 6, 61, 8, 8, ()), Heads((1,), 19, 300, 64, 4, (19, 300))],
    ids=str,
)
def test_work_groups_of_gpus_divide_the_keys_of_few_rows(
    heads: Heads, precision: Literal["fp32", "fp16"], device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second kernel joins the results, also of parts whose keys are all masked."""
    divide_keys(monkeypatch, 5)
    net = Net(seed=heads.rows)
    q, k, v = (computed(net, shape) for shape in heads.shapes)
    mask = net.normal(heads.mask or (1, 1, heads.keys))
    if heads.mask:
        mask[..., :30] = -np.inf
        mask[..., 60:90] = np.finfo(np.float32).min
    net.output(attention(net, heads, q, k, v, mask))
    weights = reference.softmax((q.value @ np.swapaxes(k.value, -1, -2) + mask).astype(np.float64))
    case = net.case()
    assert "rows/join_attention" in templates(plan_of(case.model, GPU))
    execution = tflgpu.Execution(kernels="gpu")
    options = tflgpu.Options(device=device_name, execution=execution, precision=precision, cache="off")
    with limited(device_name, Simulation()):
        (got,) = tflgpu.compile(case.model, options).run(case.inputs).values()
    expected = weights @ v.value
    tolerance = 1e-4 if precision == "fp32" else 2e-2  # the second kernel has the device's fastest exponentials
    np.testing.assert_allclose(got, expected, atol=tolerance * np.abs(expected).max())


def test_a_cache_of_many_keys_keeps_all_compute_units_busy() -> None:
    """There is one token: three heads of keys would be three work-groups."""
    net = Net(seed=1)
    net.output(attention_of_groups(net, Groups(3, 3, 1, 1280, 64)))
    plan = plan_of(net.case().model, replace(GPU, compute_units=132))
    (found,) = (k for k in plan.kernels if isinstance(k.node.attributes, Attention))
    assert found.kernel.tiles > 24
