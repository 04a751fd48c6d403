"""Neighbours that one kernel computes, on devices with matrix units."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kernels.fused_networks import PairNet
from tests.support.planning import graph_of, plan_of
from tests.support.targets import H200, waiting
from tflgpu.graph.ir import Node
from tflgpu.kernels.mma.pointwise_depthwise import PointwiseDepthwise, pointwise_depthwise_candidates
from tflgpu.kernels.mma.rewrites import PAIR_KINDS, Pair, best_pairs
from tflgpu.kernels.tiling import LOCAL_VEC4S
from tflgpu.model.reader import read_model
from tflgpu.plan import make_plan
from tflgpu.plan.barrier_intervals import barrier_intervals
from tflgpu.target import Limits, Target

# These costs are so high that everything that can fuse fuses.
H200_FUSING = waiting(H200, 1e9)


def fused(net: PairNet, *outputs: int, target: Target = H200) -> list[Node]:
    """The nodes that compute several convolutions of the model each."""
    model = net.finish(outputs)
    operators = read_model(model).subgraphs[0].operators
    nodes = [planned.node for planned in plan_of(model, waiting(target, 1e9)).kernels]
    return [node for node in nodes if sum("CONV" in operators[source].code for source in node.sources) > 1]


def test_a_pair_is_one_kernel_of_both_operators() -> None:
    net = PairNet()
    plan = plan_of(net.finish([net.depthwise(net.pointwise())]), H200_FUSING)
    assert [planned.node.sources for planned in plan.kernels[1:]] == [(0,), (1, 2)]
    assert barrier_intervals(plan) == (0, 1, 2)
    pointwise, depthwise = 8 * 8 * 24 * 16, 8 * 8 * 24 * 9
    assert plan.kernels[-1].kernel.macs == pointwise + depthwise


def test_a_depthwise_convolution_joins_the_pointwise_one_behind_it() -> None:
    """A block of BlazeFace: the image is also added to the result, and that read twice again."""
    net = PairNet(channels=16)
    block = net.add("ADD", [net.image, net.convolution(net.depthwise(net.image), 16)])
    again = net.add("ADD", [block, net.convolution(net.depthwise(block), 16)])
    plan = plan_of(net.finish([again]), H200_FUSING)
    assert [planned.node.sources for planned in plan.kernels[1:]] == [(0,), (1, 2, 3), (4, 5, 6)]
    assert plan.kernels[2].kernel.macs == 8 * 8 * 16 * (9 + 16)
    assert barrier_intervals(plan) == (0, 1, 2, 3)


@pytest.mark.parametrize(("saved", "expected"), [([2, 3, 2], [1, 3]), ([2, 5, 2], [2]), ([1, 1, 3, 1], [1, 3])])
def test_a_chain_pairs_up_to_save_the_most(saved: list[float], expected: list[int]) -> None:
    """Node n and the one before it would save ``saved[n - 1]``."""
    nodes = [Node("convolution", (n - 1,), n) for n in range(len(saved) + 1)]
    pairs = {n + 1: Pair(PAIR_KINDS[0], nodes[n], nodes[n + 1], value) for n, value in enumerate(saved)}
    assert sorted(best_pairs(pairs)) == expected


def test_chains_pair_up_by_themselves() -> None:
    pairs = {n: Pair(PAIR_KINDS[0], Node("a", (), n - 1), Node("b", (n - 1,), n), 1.0) for n in (11, 21)}
    assert best_pairs(pairs) == pairs


def test_a_residual_joins_the_pair() -> None:
    net = PairNet(channels=16)
    (node,) = fused(net, net.add("ADD", [net.image, net.depthwise(net.pointwise())]))
    assert node.inputs[0] == node.inputs[min(node.epilogue_inputs)], (
        "the image is read by the kernel and by its last step"
    )


def test_activations_of_their_own_fuse() -> None:
    net = PairNet(channels=16)
    (node,) = fused(net, net.depthwise(net.add("LOGISTIC", [net.pointwise(activation="NONE")])))
    assert node.sources == (1, 2, 3)


def an_output(net: PairNet) -> tuple[int, ...]:
    between = net.pointwise()
    return between, net.depthwise(between)


def a_second_reader(net: PairNet) -> tuple[int, ...]:
    between = net.pointwise()
    return (net.add("ADD", [between, net.depthwise(between)]),)


def an_operand(net: PairNet) -> tuple[int, ...]:
    return (net.depthwise(net.add("PRELU", [net.pointwise(activation="NONE"), net.weights(net.channels)])),)


def a_larger_window(net: PairNet) -> tuple[int, ...]:
    return (net.depthwise(net.pointwise(side=3)),)


def many_taps(net: PairNet) -> tuple[int, ...]:
    return (net.depthwise(net.pointwise(), side=7),)


def a_multiplier(net: PairNet) -> tuple[int, ...]:
    return (net.depthwise(net.pointwise(), multiplier=2),)


def a_depthwise_output(net: PairNet) -> tuple[int, ...]:
    between = net.depthwise(net.image)
    return between, net.convolution(between, 16)


def a_multiplier_before(net: PairNet) -> tuple[int, ...]:
    between = net.depthwise(net.image, multiplier=2)
    return (net.convolution(between, 16),)


def a_larger_window_behind(net: PairNet) -> tuple[int, ...]:
    return (net.convolution(net.depthwise(net.image), 16, side=3),)


def a_mean_of_rows(net: PairNet) -> tuple[int, ...]:
    return (net.mean(net.pointwise(), 1),)


APART = (an_output, a_second_reader, an_operand, a_larger_window, many_taps, a_multiplier)
APART += (a_depthwise_output, a_multiplier_before, a_larger_window_behind, a_mean_of_rows)


@pytest.mark.parametrize("case", APART)
def test_what_one_kernel_cannot_do_stays_apart(case: object) -> None:
    assert callable(case)
    net = PairNet()
    assert fused(net, *case(net)) == []


def test_lanes_past_the_last_channel_have_to_stay_zero() -> None:
    """The exponential of a zero is none, and 0 times infinity would be NaN."""
    net = PairNet(channels=22)
    assert fused(net, net.depthwise(net.add("EXP", [net.pointwise(activation="NONE")]))) == []


def test_a_gpu_without_tensor_cores_has_no_such_kernel() -> None:
    net = PairNet()
    assert fused(net, net.depthwise(net.pointwise()), target=replace(H200, matrix_unit=None)) == []


def test_floats_fuse_as_halves_do() -> None:
    net = PairNet()
    (node,) = fused(net, net.depthwise(net.pointwise()), target=replace(H200, storage="float"))
    assert node.sources == (1, 2)


@pytest.mark.parametrize(("kept", "count"), [({0}, 0), ({1}, 0), ({0, 1}, 1), ({2}, 1), ({0, 1, 2}, 1)])
def test_what_is_between_a_pair_lies_in_memory_as_the_image_does(kept: set[int], count: int) -> None:
    """kept: of the image, what is between, and the result, those that are precise."""
    net = PairNet()
    model = net.finish([net.add("ABS", [net.depthwise(net.pointwise())])])
    graph = graph_of(model)
    marked = [replace(graph[graph.nodes[n].output], precise=True) for n in kept]
    plan = make_plan(graph.with_nodes(graph.nodes, marked), H200_FUSING)
    assert [planned.node.sources[:2] for planned in plan.kernels].count((1, 2)) == count


def test_it_is_left_where_two_kernels_are_faster() -> None:
    net = PairNet()
    plan = plan_of(net.finish([net.depthwise(net.pointwise())]), waiting(H200, -1e9))
    assert all(len(planned.node.sources) < 2 for planned in plan.kernels)


def test_rows_that_no_local_memory_can_hold_do_not_fuse() -> None:
    net, small = PairNet(), replace(H200, limits=Limits(local_bytes=128))
    assert fused(net, net.convolution(net.depthwise(net.pointwise()), 24), target=small) == []


def test_tiles_cover_the_result_within_local_memory() -> None:
    net = PairNet(channels=100)
    plan = plan_of(net.finish([net.depthwise(net.pointwise())]), H200_FUSING)
    kernel, node = plan.kernels[-1].kernel, plan.kernels[-1].node
    assert isinstance(node.attributes, PointwiseDepthwise)
    src, dst = plan.storage[node.inputs[0]], plan.storage[node.output]
    first, *_ = pointwise_depthwise_candidates(node.attributes.window, src, dst, H200)
    assert first.tile.rows * first.tile.column_blocks * 16 * first.work.tiles >= 8 * 100
    assert first.work.workspace == kernel.workspace <= LOCAL_VEC4S


REAL = [("mobilenet_v1_0.25_224_1_default_1", 17), ("deeplabv3_257_mv_gpu", 41), ("face_landmark", 31)]


@pytest.mark.parametrize(("name", "kernels"), REAL)
def test_kernels_of_real_models(name: str, kernels: int, shared: Path) -> None:
    """Plans for an H200, where the model of cycles decides. A lost fusion shows here."""
    plan = plan_of((shared / "models" / f"{name}.tflite").read_bytes())
    assert len(plan.kernels) == kernels
    assert 1 + max(barrier_intervals(plan)) <= kernels
