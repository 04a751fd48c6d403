"""The graph passes: each does what it is for, leaves alone what it must, and changes no result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import Graph, Node, remove_dead, verify
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder
from tflgpu.ops.evaluate import value_of
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.movement.shaping import Rearrange
from tflgpu.options import Options
from tflgpu.passes import PASSES, Pass, optimize
from tflgpu.passes.fold_affine import fold_affine
from tflgpu.passes.fold_constants import fold_constants
from tflgpu.passes.fuse import fuse_elementwise, inline_shared_source
from tflgpu.passes.merge_padding import merge_padding
from tflgpu.passes.pack_weights import pack_weights
from tflgpu.passes.simplify import simplify
from tflgpu.passes.sink_transposes import sink_transposes
from tflgpu.plan import make_plan
from tflgpu.runtime.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session

Floats = NDArray[np.float32]
IMAGE = (1, 6, 5, 7)
WINDOW = {"padding": "VALID", "stride_w": 1, "stride_h": 1}


class Model:
    """A model under construction, of which only structure matters: all weights are random."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.builder = ModelBuilder()
        self.shapes: dict[int, tuple[int, ...]] = {}

    def input(self, *shape: int) -> int:
        return self._known(self.builder.input(shape), shape)

    def constant(self, *shape: int) -> int:
        return self._known(self.builder.constant(self.rng.standard_normal(shape).astype(np.float32)), shape)

    def integers(self, values: object) -> int:
        return self.builder.constant(np.array(values, np.int32))

    def op(self, code: str, inputs: list[int], shape: tuple[int, ...] | None = None, **options: object) -> int:
        """Of the shape of its first input, if none is given."""
        shape = self.shapes[inputs[0]] if shape is None else shape
        output = self._known(self.builder.tensor(shape), shape)
        self.builder.op(code, inputs, [output], options or None)
        return output

    def conv(self, x: int, kernel: int = 1, out: int = 7) -> int:
        b, h, w, c = self.shapes[x]
        inputs = [x, self.constant(out, kernel, kernel, c), self.constant(out)]
        return self.op("CONV_2D", inputs, (b, h - kernel + 1, w - kernel + 1, out), **WINDOW)

    def pad(self, x: int, margins: list[tuple[int, int]]) -> int:
        shape = tuple(d + a + b for d, (a, b) in zip(self.shapes[x], margins, strict=True))
        return self.op("PAD", [x, self.integers(margins)], shape)

    def transpose(self, x: int, order: Sequence[int]) -> int:
        return self.op("TRANSPOSE", [x, self.integers(order)], tuple(self.shapes[x][axis] for axis in order))

    def graph(self, *outputs: int) -> Graph:
        lowered = lower(read_model(self.builder.finish(outputs)))
        assert lowered.obstacles == ()
        return lowered.graph

    def _known(self, tensor: int, shape: tuple[int, ...]) -> int:
        self.shapes[tensor] = shape
        return tensor


def kinds(graph: Graph) -> Counter[str]:
    return Counter(node.kind for node in graph.nodes)


def functions(node: Node) -> list[str]:
    return [op.function for op in node.epilogue]


def run(graph: Graph) -> list[Floats]:
    device = choose("Portable Computing Language")
    session = open_session(device)
    plan = make_plan(graph, device.target(Options(precision="fp32")))
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal(graph[t].shape).astype(np.float32) for t in graph.inputs]
    source = render(plan)
    return LaunchExecutor(link(plan, source.names), build(source.text, session)[0], session).run(inputs)


def assert_same_results(before: Graph, after: Graph) -> None:
    for expected, got in zip(run(before), run(after), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def apply(rewrite: Pass, before: Graph) -> Graph:
    """The rewritten graph, verified, and with the results of the old one."""
    after = remove_dead(rewrite(before))
    verify(after)
    assert_same_results(before, after)
    return after


def residual_block() -> Graph:
    m = Model()
    x = m.input(*IMAGE)
    skip = m.op("RELU", [m.conv(x)])
    y = m.op("MUL", [m.conv(m.pad(skip, [(0, 0), (1, 1), (1, 1), (0, 0)]), kernel=3), m.constant(7)])
    return m.graph(m.op("RELU6", [m.op("ADD", [skip, y])]))


def swish_and_softmax() -> Graph:
    m = Model()
    x = m.conv(m.input(*IMAGE))
    y = m.op("MUL", [x, m.op("LOGISTIC", [x])])
    flat = m.op("RESHAPE", [y], (1, 210), new_shape=[1, 210])
    return m.graph(m.op("SOFTMAX", [flat], beta=1.0), x)


@pytest.mark.parametrize("build_graph", [residual_block, swish_and_softmax])
def test_optimizing_keeps_meaning(build_graph: Callable[[], Graph]) -> None:
    graph = build_graph()
    optimized = optimize(graph)
    assert len(optimized.nodes) < len(graph.nodes)
    assert_same_results(graph, optimized)


@pytest.mark.parametrize("build_graph", [residual_block, swish_and_softmax])
def test_optimizing_twice_changes_nothing_more(build_graph: Callable[[], Graph]) -> None:
    once = optimize(build_graph())
    assert kinds(optimize(once)) == kinds(once)


def test_every_pass_is_tested() -> None:
    assert set(PASSES.values()) <= {
        fold_constants,
        simplify,
        sink_transposes,
        merge_padding,
        fold_affine,
        inline_shared_source,
        fuse_elementwise,
        pack_weights,
    }


def test_what_depends_on_constants_alone_is_folded() -> None:
    m = Model()
    x = m.input(*IMAGE)
    constant = m.op("EXP", [m.op("MUL", [m.constant(7), m.constant(7)])])
    graph = apply(fold_constants, m.graph(m.op("ADD", [x, constant])))
    assert len(graph.nodes) == 1


def test_folding_leaves_a_constant_output_to_the_device() -> None:
    m = Model()
    x = m.input(*IMAGE)
    graph = apply(fold_constants, m.graph(m.op("EXP", [m.constant(7)]), m.op("ABS", [x])))
    assert len(graph.nodes) == 2


def test_identities_disappear() -> None:
    m = Model()
    x = m.conv(m.input(*IMAGE))
    same = m.op("TRANSPOSE", [m.pad(x, [(0, 0)] * 4), m.integers([0, 1, 2, 3])])
    graph = apply(simplify, m.graph(m.op("ABS", [same])))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_a_reshape_that_moves_no_byte_is_a_view() -> None:
    m = Model()
    y = m.op("RESHAPE", [m.conv(m.input(1, 1, 1, 8), out=10)], (1, 10), new_shape=[1, 10])
    assert kinds(apply(simplify, m.graph(m.op("ABS", [y]))))["view"] == 1


def test_a_reshape_that_moves_bytes_is_none() -> None:
    m = Model()
    y = m.op("RESHAPE", [m.conv(m.input(*IMAGE))], (1, 210), new_shape=[1, 210])
    assert kinds(apply(simplify, m.graph(m.op("ABS", [y]))))["view"] == 0


CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def assert_channels_last(graph: Graph, expected: dict[str, int]) -> None:
    """That sinking leaves these nodes alone, and no axis in another place than before the first transpose."""
    sunk = apply(sink_transposes, graph)
    assert kinds(sunk) == expected
    for node in sunk.nodes:
        if isinstance(node.attributes, Rearrange):
            assert [m.axis for m in node.attributes.axes] == [0, 1, 2, 3]


def test_transposes_meet_past_elementwise_functions() -> None:
    m = Model()
    x = m.transpose(m.conv(m.input(*IMAGE)), CHANNELS_FIRST)
    y = m.op("MUL", [x, m.op("LOGISTIC", [x])])
    y = m.op("ADD", [m.op("MUL", [y, m.constant(7, 1, 1)]), m.op("ABS", [m.constant(1)])])
    assert_channels_last(m.graph(m.conv(m.transpose(y, CHANNELS_LAST))), {"convolution": 2, "map": 4})


def test_transposes_meet_past_padding_and_slices() -> None:
    m = Model()
    x = m.pad(m.transpose(m.conv(m.input(*IMAGE)), CHANNELS_FIRST), [(0, 0), (0, 1), (2, 0), (1, 3)])
    begin, end, strides = m.integers([0, 1, 0, 4]), m.integers([1, 8, 8, 0]), m.integers([1, 2, 1, -1])
    y = m.op("STRIDED_SLICE", [x, begin, end, strides], (1, 4, 8, 4))
    graph = m.graph(m.conv(m.transpose(y, CHANNELS_LAST)))
    assert_channels_last(graph, {"convolution": 2, "rearrange": 2})


def test_transposes_meet_past_concatenations_and_reductions() -> None:
    m = Model()
    x, y = (m.transpose(m.conv(m.input(*IMAGE), out=out), CHANNELS_FIRST) for out in (3, 6))
    both = m.op("CONCATENATION", [x, y], (1, 9, 6, 5), axis=1)
    mean = m.op("MEAN", [both, m.integers([3])], (1, 9, 6, 1), keep_dims=True)
    graph = m.graph(m.conv(m.transpose(mean, CHANNELS_LAST)))
    assert_channels_last(graph, {"convolution": 3, "concatenate": 1, "reduce": 1})


def test_a_transpose_that_meets_no_other_is_done_once() -> None:
    m = Model()
    x = m.transpose(m.transpose(m.input(*IMAGE), (3, 0, 2, 1)), (1, 0, 2, 3))
    graph = apply(sink_transposes, m.graph(m.op("ABS", [x])))
    assert kinds(graph) == {"rearrange": 1, "map": 1}
    assert graph.nodes[-1].kind == "rearrange"


def test_a_transposed_output_is_written() -> None:
    m = Model()
    x = m.transpose(m.conv(m.input(*IMAGE)), CHANNELS_FIRST)
    back = m.transpose(x, CHANNELS_LAST)
    graph = apply(sink_transposes, m.graph(x, m.op("ABS", [back]), m.op("NEG", [m.op("EXP", [x])])))
    assert kinds(graph) == {"convolution": 1, "map": 3, "rearrange": 2}
    assert kinds(apply(sink_transposes, m.graph(back, m.transpose(back, CHANNELS_FIRST)))) == {
        "convolution": 1,
        "rearrange": 2,
    }


def moving_network(seed: int) -> Graph:
    """Elementwise functions, padding, slices and concatenations among transposes at random."""
    m, rng = Model(), np.random.default_rng(seed)
    tensors = [m.transpose(m.op("ABS", [m.input(1, 2, 3, 4)]), rng.permutation(4).tolist()) for _ in range(2)]
    for _ in range(12):
        x = tensors[rng.integers(len(tensors))]
        shape = m.shapes[x]
        same = [t for t in tensors if m.shapes[t] == shape]
        match rng.integers(6):
            case 0 | 1:
                x = m.transpose(x, rng.permutation(4).tolist())
            case 2:
                x = m.op("SUB", [x, same[rng.integers(len(same))]])
            case 3:
                kept = tuple(d if rng.integers(2) else 1 for d in shape)[rng.integers(4) :]
                x = m.op("MUL", [m.constant(*kept), x], shape)
            case 4:
                x = m.pad(x, [(int(a), int(b)) for a, b in rng.integers(2, size=(4, 2))])
            case 5:
                axis, other = int(rng.integers(4)), same[rng.integers(len(same))]
                joint = tuple(2 * d if i == axis else d for i, d in enumerate(shape))
                x = m.op("CONCATENATION", [x, other], joint, axis=axis)
        if np.prod(m.shapes[x]) < 10_000:
            tensors.append(x)
    return m.graph(*dict.fromkeys(tensors[-3:]))


def evaluated(graph: Graph) -> list[NDArray[np.generic]]:
    """What numpy makes of a graph that only computes elementwise and moves data."""
    rng = np.random.default_rng(0)
    tensors = dict(graph.tensors)
    for t in graph.inputs:
        tensors[t] = replace(tensors[t], data=rng.standard_normal(tensors[t].shape).astype(np.float32))
    for node in graph.nodes:
        value = value_of(node, [tensors[t] for t in node.inputs], tensors[node.output])
        assert value is not None
        tensors[node.output] = replace(tensors[node.output], data=value)
    return [data for t in graph.outputs if (data := tensors[t].data) is not None]


def test_sinking_transposes_changes_no_element() -> None:
    shorter = 0
    for seed in range(200):
        graph = moving_network(seed)
        sunk = remove_dead(sink_transposes(graph))
        verify(sunk)
        shorter += len(sunk.nodes) < len(graph.nodes)
        for expected, got in zip(evaluated(graph), evaluated(sunk), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert shorter > 50


def plain_operand(m: Model, x: int) -> int:
    return m.op("ADD", [m.transpose(x, (0, 2, 1, 3)), m.input(1, 5, 6, 7)])


def other_axes(m: Model, x: int) -> int:
    """Softmax is over the last axis, whichever that is."""
    return m.transpose(m.op("SOFTMAX", [m.transpose(x, CHANNELS_FIRST)], beta=1.0), CHANNELS_LAST)


def two_readers(m: Model, x: int) -> int:
    """Each would need a transpose of its own."""
    y = m.transpose(x, CHANNELS_FIRST)
    return m.op("SUB", [m.op("SOFTMAX", [m.op("ABS", [y])], beta=1.0), m.op("SOFTMAX", [m.op("EXP", [y])], beta=1.0)])


@pytest.mark.parametrize("build_graph", [plain_operand, other_axes, two_readers])
def test_transposes_stay_where_they_are_needed(build_graph: Callable[[Model, int], int]) -> None:
    m = Model()
    graph = m.graph(build_graph(m, m.conv(m.input(*IMAGE))))
    assert sink_transposes(graph) is graph


def test_padding_joins_the_convolution() -> None:
    m = Model()
    x = m.pad(m.conv(m.input(*IMAGE)), [(0, 0), (1, 2), (0, 1), (0, 0)])
    graph = apply(merge_padding, m.graph(m.conv(x, kernel=3)))
    assert kinds(graph) == {"convolution": 2}
    attributes = graph.nodes[-1].attributes
    assert isinstance(attributes, Convolution)
    p = attributes.window.padding
    assert (p.top, p.bottom, p.left, p.right) == (1, 2, 0, 1)


@pytest.mark.parametrize("code", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_padding_stays_out_of_pooling(code: str) -> None:
    m = Model()
    x = m.pad(m.input(*IMAGE), [(0, 0), (1, 1), (1, 1), (0, 0)])
    y = m.op(code, [x], (1, 6, 5, 7), filter_width=3, filter_height=3, **WINDOW)
    assert kinds(apply(merge_padding, m.graph(y))) == {"rearrange": 1, "pool": 1}


@pytest.mark.parametrize(
    ("code", "activation", "pixels", "merged"),
    [
        ("MAX_POOL_2D", "RELU", 2, True),
        ("MAX_POOL_2D", "RELU6", 1, True),
        ("MAX_POOL_2D", "RELU_N1_TO_1", 1, False),  # a zero can be the maximum of negative numbers
        ("MAX_POOL_2D", "RELU", 3, False),  # windows in the corners see zeros only
        ("AVERAGE_POOL_2D", "RELU", 1, False),
    ],
)
def test_padding_joins_the_maximum_that_it_cannot_change(code: str, activation: str, pixels: int, merged: bool) -> None:
    m = Model()
    x = m.pad(m.op(activation, [m.input(*IMAGE)]), [(0, 0), (pixels, 1), (pixels, 1), (0, 0)])
    shape = (1, IMAGE[1] + pixels - 1, IMAGE[2] + pixels - 1, IMAGE[3])
    y = m.op(code, [x], shape, filter_width=3, filter_height=3, **WINDOW)
    graph = apply(merge_padding, m.graph(y))
    assert kinds(graph) == {"map": 1, "pool": 1} | ({} if merged else {"rearrange": 1})


def test_padding_of_channels_stays() -> None:
    m = Model()
    graph = apply(merge_padding, m.graph(m.conv(m.pad(m.input(*IMAGE), [(0, 0), (1, 1), (0, 0), (0, 2)]))))
    assert kinds(graph) == {"rearrange": 1, "convolution": 1}


def test_padding_joins_each_of_its_readers_that_can_pad() -> None:
    m = Model()
    x = m.pad(m.input(*IMAGE), [(0, 0), (1, 1), (1, 1), (0, 0)])
    assert kinds(apply(merge_padding, m.graph(m.conv(x), m.conv(x, kernel=3)))) == {"convolution": 2}
    graph = apply(merge_padding, m.graph(m.conv(x), m.op("ABS", [x])))
    assert kinds(graph) == {"rearrange": 1, "convolution": 1, "map": 1}
    convolution = next(n for n in graph.nodes if n.kind == "convolution")
    assert convolution.inputs[0] in graph.inputs


@pytest.mark.parametrize("code", ["MUL", "ADD", "SUB"])
@pytest.mark.parametrize("constant_first", [False, True])
@pytest.mark.parametrize("shape", [(7,), (1,), (1, 1, 1, 7)])
def test_channel_constants_fold_into_weights(code: str, constant_first: bool, shape: tuple[int, ...]) -> None:
    m = Model()
    x, constant = m.conv(m.input(*IMAGE)), m.constant(*shape)
    y = m.op(code, [constant, x] if constant_first else [x, constant], IMAGE)
    graph = apply(fold_affine, m.graph(y))
    assert [functions(n) for n in graph.nodes] == [[]]


def test_a_constant_of_every_pixel_does_not_fold_into_weights() -> None:
    m = Model()
    graph = apply(fold_affine, m.graph(m.op("MUL", [m.conv(m.input(*IMAGE)), m.constant(*IMAGE)])))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_a_result_that_others_read_does_not_fold_into_weights() -> None:
    m = Model()
    x = m.conv(m.input(*IMAGE))
    graph = apply(fold_affine, m.graph(m.op("MUL", [x, m.constant(7)]), x))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_swish_becomes_part_of_its_producer() -> None:
    m = Model()
    x = m.conv(m.input(*IMAGE))
    graph = m.graph(m.op("MUL", [x, m.op("LOGISTIC", [x])]))
    (node,) = apply(lambda g: fuse_elementwise(inline_shared_source(g)), graph).nodes
    assert (node.kind, functions(node)) == ("convolution", ["logistic", "mul"])


def test_a_residual_sum_joins_the_convolution_behind_it() -> None:
    m = Model()
    skip = m.conv(m.input(*IMAGE))
    last = m.conv(m.op("RELU", [skip]))
    graph = apply(fuse_elementwise, m.graph(m.op("ADD", [skip, last])))
    fused = [(n.kind, functions(n)) for n in graph.nodes]
    assert fused == [("convolution", []), ("map", ["relu"]), ("convolution", ["add"])]


def test_a_chain_joins_step_by_step() -> None:
    m = Model()
    x = m.conv(m.input(*IMAGE))
    y = m.op("SUB", [m.input(7), m.op("ABS", [x])], IMAGE)
    (node,) = apply(fuse_elementwise, m.graph(m.op("EXP", [y]))).nodes
    assert (node.kind, functions(node)) == ("convolution", ["abs", "sub", "exp"])


@pytest.mark.parametrize("code", ["SUB", "DIV", "MUL"])
def test_the_same_tensor_twice_is_read_right(code: str) -> None:
    m = Model()
    x = m.conv(m.input(*IMAGE))
    assert_same_results(graph := m.graph(m.op(code, [x, x])), optimize(graph))


def test_an_output_is_never_fused_away() -> None:
    m = Model()
    x = m.conv(m.input(*IMAGE))
    graph = apply(fuse_elementwise, m.graph(m.op("ABS", [x]), x))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_a_broadcast_operand_is_no_producer_to_join() -> None:
    m = Model()
    x = m.input(*IMAGE)
    row = m.conv(m.input(1, 1, 5, 3))
    graph = apply(fuse_elementwise, m.graph(m.op("ADD", [x, row])))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_weights_that_are_no_constants_are_packed_once() -> None:
    """What the packed weights give is the op table's affair."""
    m = Model()
    x, weights = m.input(*IMAGE), m.input(5, 3, 3, 7)
    graph = pack_weights(m.graph(m.op("CONV_2D", [x, weights], (1, 4, 3, 5), **WINDOW)))
    verify(graph)
    assert kinds(graph) == {"gather": 1, "convolution": 1}
    assert graph[graph.nodes[-1].inputs[1]].shape == (3 * 3 * 8, 16)
    assert kinds(pack_weights(graph)) == kinds(graph)


def test_constant_weights_and_depthwise_ones_stay() -> None:
    m = Model()
    x = m.conv(m.input(*IMAGE))
    y = m.op("DEPTHWISE_CONV_2D", [x, m.input(1, 3, 3, 7)], (1, 4, 3, 7), depth_multiplier=1, **WINDOW)
    graph = m.graph(y)
    assert kinds(pack_weights(graph)) == kinds(graph)
