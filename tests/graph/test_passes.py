"""The graph passes: each does what it is for, leaves alone what it must, and changes no result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from tests.graph.model import IMAGE, WINDOW, Model, apply, assert_same_results, functions, kinds, rewritten
from tests.support.models import Builder
from tests.support.planning import graph_of, plan_of
from tests.support.targets import CPU
from tflgpu.graph.ir import EpilogueOp, Graph, Value, verify
from tflgpu.ops.image.convolution import Convolution
from tflgpu.passes import PASSES, optimize
from tflgpu.passes.fuse import inline_operands


def residual_block() -> Graph:
    m = Model()
    x = m.input(IMAGE)
    skip = m.add("RELU", [m.conv(x)])
    y = m.add("MUL", [m.conv(m.pad(skip, [(0, 0), (1, 1), (1, 1), (0, 0)]), kernel=3), m.weights(7)])
    return m.graph(m.add("RELU6", [m.add("ADD", [skip, y])]))


def swish_and_softmax() -> Graph:
    m = Model()
    x = m.conv(m.input(IMAGE))
    y = m.add("MUL", [x, m.add("LOGISTIC", [x])])
    flat = m.add("RESHAPE", [y], (1, 210), new_shape=[1, 210])
    return m.graph(m.add("SOFTMAX", [flat], beta=1.0), x)


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
    assert PASSES.keys() <= {
        "sum_squares",  # tests/measure/test_half_attacks.py
        "find_layer_norms",  # tests/kernels/test_rows.py
        "find_softmaxes",  # test_find_softmaxes.py
        "gather_rows",  # test_gather_rows.py
        "join_depthwise",  # test_join_depthwise.py
        "fold_constants",
        "simplify",
        "sink_transposes",
        "slice_concatenations",
        "shorten_lookups",
        "merge_movements",  # test_merge_movements.py
        "merge_products",  # test_merge_products.py
        "merge_padding",
        "merge_rounding",
        "pad_heads",  # tests/kernels/test_attention.py
        "fold_affine",
        "merge_affine",
        "nest_concatenations",
        "keep_given_weights",
        "keep_precise",  # tests/plan/test_large_sums.py, tests/measure/test_half_attacks.py
        "inline_shared_source",
        "fuse",
        "fuse_padding",  # test_narrow_residuals.py
        "pack_weights",
    }


def test_what_depends_on_constants_alone_is_folded() -> None:
    m = Model()
    x = m.input(IMAGE)
    constant = m.add("EXP", [m.add("MUL", [m.weights(7), m.weights(7)])])
    graph = apply("fold_constants", m.graph(m.add("ADD", [x, constant])))
    assert len(graph.nodes) == 1


def test_slices_of_slices_are_one() -> None:
    m = Model()
    x = m.add("STRIDED_SLICE", [m.input((9, 8)), m.ints([1, 1]), m.ints([9, 8]), m.ints([2, 3])], (4, 3))
    y = m.add("STRIDED_SLICE", [x, m.ints([1, 0]), m.ints([4, 3]), m.ints([2, 2])], (2, 2))
    assert kinds(apply("simplify", m.graph(y))) == {"rearrange": 1}
    assert kinds(apply("simplify", m.graph(x, y))) == {"rearrange": 2}


def test_a_transposed_input_is_read_in_the_hosts_order() -> None:
    m = Model()
    plan = plan_of(m.finish([m.conv(m.transpose(m.input((1, 7, 6, 5)), (0, 2, 3, 1)))]), CPU)
    assert [kernel.node.kind for kernel in plan.kernels] == ["strided", "convolution"]


def test_what_was_fused_into_a_map_is_fused_into_a_convolution() -> None:
    m = Model()
    x = m.input(IMAGE)
    y = m.conv(x)
    graph = apply("fuse", m.graph(m.add("SUB", [y, m.add("ABS", [x])])))
    assert kinds(graph) == {"convolution": 1}


def test_folding_leaves_a_constant_output_to_the_device() -> None:
    m = Model()
    x = m.input(IMAGE)
    graph = apply("fold_constants", m.graph(m.add("EXP", [m.weights(7)]), m.add("ABS", [x])))
    assert len(graph.nodes) == 2


def test_identities_disappear() -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    same = m.add("TRANSPOSE", [m.pad(x, [(0, 0)] * 4), m.ints([0, 1, 2, 3])])
    graph = apply("simplify", m.graph(m.add("ABS", [same])))
    assert kinds(graph) == {"convolution": 1, "map": 1}


@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"half_pixel_centers": True}])
def test_a_resize_to_the_same_size_disappears(options: dict[str, bool]) -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    same = m.add("RESIZE_BILINEAR", [x, m.ints(IMAGE[1:3])], **options)
    assert kinds(apply("simplify", m.graph(m.add("ABS", [same])))) == {"convolution": 1, "map": 1}


def test_a_reshape_that_moves_no_byte_is_a_view() -> None:
    m = Model()
    y = m.add("RESHAPE", [m.conv(m.input((1, 1, 1, 8)), out=10)], (1, 10), new_shape=[1, 10])
    assert kinds(apply("simplify", m.graph(m.add("ABS", [y]))))["view"] == 1


def test_a_reshape_that_moves_bytes_is_none() -> None:
    m = Model()
    y = m.add("RESHAPE", [m.conv(m.input(IMAGE))], (1, 210), new_shape=[1, 210])
    assert kinds(apply("simplify", m.graph(m.add("ABS", [y]))))["view"] == 0


def test_padding_joins_the_convolution() -> None:
    m = Model()
    x = m.pad(m.conv(m.input(IMAGE)), [(0, 0), (1, 2), (0, 1), (0, 0)])
    graph = apply("merge_padding", m.graph(m.conv(x, kernel=3)))
    assert kinds(graph) == {"convolution": 2}
    attributes = graph.nodes[-1].attributes
    assert isinstance(attributes, Convolution)
    p = attributes.window.padding
    assert (p.top, p.bottom, p.left, p.right) == (1, 2, 0, 1)


@pytest.mark.parametrize("code", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_padding_stays_out_of_pooling(code: str) -> None:
    m = Model()
    x = m.pad(m.input(IMAGE), [(0, 0), (1, 1), (1, 1), (0, 0)])
    y = m.add("MAX_POOL_2D", [x], (1, 6, 5, 7), filter_width=3, filter_height=3, **WINDOW)
    assert kinds(apply("merge_padding", m.graph(y))) == {"rearrange": 1, "pool": 1}


@pytest.mark.parametrize(
    ("code", "activation", "margins", "merged"),
    [
        ("MAX_POOL_2D", "RELU", (2, 1, 2, 1), True),
        ("MAX_POOL_2D", "RELU6", (1, 1, 1, 1), True),
        ("MAX_POOL_2D", "RELU_N1_TO_1", (1, 1, 1, 1), False),  # a zero can be the maximum of negative numbers
        # Windows at that border see zeros only.
        *(("MAX_POOL_2D", "RELU", margins, False) for margins in sorted({*permutations((3, 0, 0, 0))})),
        ("AVERAGE_POOL_2D", "RELU", (1, 1, 1, 1), False),
    ],
)
def test_padding_joins_the_maximum_that_it_cannot_change(
    code: str, activation: str, margins: tuple[int, ...], merged: bool
) -> None:
    m, (top, bottom, left, right) = Model(), margins
    x = m.pad(m.add(activation, [m.input(IMAGE)]), [(0, 0), (top, bottom), (left, right), (0, 0)])
    shape = (1, IMAGE[1] + top + bottom - 2, IMAGE[2] + left + right - 2, IMAGE[3])
    y = m.add(code, [x], shape, filter_width=3, filter_height=3, **WINDOW)
    graph = apply("merge_padding", m.graph(y))
    assert kinds(graph) == {"map": 1, "pool": 1} | ({} if merged else {"rearrange": 1})


@pytest.mark.parametrize(("fill", "merged"), [(-np.inf, True), (-1e9, False)])
def test_padding_by_minus_infinity_joins_the_maximum(fill: float, merged: bool) -> None:
    m = Model()
    margins, value = m.ints([(0, 0), (1, 1), (1, 1), (0, 0)]), m.constant(np.array(fill, np.float32))
    x = m.add("PADV2", [m.input(IMAGE), margins, value], (1, 8, 7, 7))
    y = m.add("MAX_POOL_2D", [x], (1, 6, 5, 7), filter_width=3, filter_height=3, **WINDOW)
    assert kinds(apply("merge_padding", m.graph(y))) == {"pool": 1} | ({} if merged else {"rearrange": 1})


def test_padding_of_channels_stays() -> None:
    m = Model()
    graph = apply("merge_padding", m.graph(m.conv(m.pad(m.input(IMAGE), [(0, 0), (1, 1), (0, 0), (0, 2)]))))
    assert kinds(graph) == {"rearrange": 1, "convolution": 1}


def test_padding_joins_each_of_its_readers_that_can_pad() -> None:
    m = Model()
    x = m.pad(m.input(IMAGE), [(0, 0), (1, 1), (1, 1), (0, 0)])
    assert kinds(apply("merge_padding", m.graph(m.conv(x), m.conv(x, kernel=3)))) == {"convolution": 2}
    graph = apply("merge_padding", m.graph(m.conv(x), m.add("ABS", [x])))
    assert kinds(graph) == {"rearrange": 1, "convolution": 1, "map": 1}
    convolution = next(n for n in graph.nodes if n.kind == "convolution")
    assert convolution.inputs[0] in graph.inputs


@pytest.mark.quick(when=lambda constant_first, shape: constant_first and shape == (7,))
@pytest.mark.parametrize("code", ["MUL", "ADD", "SUB"])
@pytest.mark.parametrize("constant_first", [False, True])
@pytest.mark.parametrize("shape", [(7,), (1,), (1, 1, 1, 7)])
def test_channel_constants_fold_into_weights(code: str, constant_first: bool, shape: tuple[int, ...]) -> None:
    m = Model()
    x, constant = m.conv(m.input(IMAGE)), m.weights(*shape)
    y = m.add(code, [constant, x] if constant_first else [x, constant], IMAGE, fused_activation_function="RELU")
    graph = apply("fold_affine", m.graph(y))
    assert [functions(n) for n in graph.nodes] == [["relu"]]


def test_a_constant_of_every_pixel_does_not_fold_into_weights() -> None:
    m = Model()
    graph = apply("fold_affine", m.graph(m.add("MUL", [m.conv(m.input(IMAGE)), m.weights(*IMAGE)])))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_a_result_that_others_read_does_not_fold_into_weights() -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    graph = apply("fold_affine", m.graph(m.add("MUL", [x, m.weights(7)]), x))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_swish_becomes_part_of_its_producer() -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    graph = m.graph(m.add("MUL", [x, m.add("LOGISTIC", [x])]))
    (node,) = apply("inline_shared_source fuse", graph).nodes
    assert (node.kind, functions(node)) == ("convolution", ["logistic", "mul"])


@pytest.mark.parametrize("first", [True, False], ids=["x first", "x last"])
def test_a_function_of_several_steps_joins_the_producer_of_what_it_multiplies(first: bool) -> None:
    """The result of a function may be rounded: both factors are one tensor's."""
    m = Model()
    x = m.conv(m.input(IMAGE))
    gate = m.add("ABS", [m.add("TANH", [m.add("LOGISTIC", [x])])])
    graph = m.graph(m.add("SUB", [x, gate] if first else [gate, x]))
    joined = apply("inline_shared_source fuse", graph)
    (node,) = joined.nodes
    assert (node.kind, functions(node)) == ("convolution", ["logistic", "tanh", "abs", "sub"])
    assert_same_results(graph, joined)


def test_a_step_that_another_node_reads_is_computed_once() -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    step = m.add("LOGISTIC", [x])
    graph = m.graph(m.add("MUL", [x, m.add("TANH", [step])]), m.add("EXP", [step]))
    assert [functions(n) for n in apply("inline_shared_source", graph).nodes].count(["logistic"]) == 1


def test_operands_that_nothing_else_reads_are_computed_where_they_are_read() -> None:
    """An example is a rotary embedding, whose cosines are of one row."""
    m = Model()
    x, y, cosine, sine = (m.input(IMAGE), m.input(IMAGE), m.input(IMAGE[-2:]), m.input(IMAGE))
    turned = m.add("SUB", [m.add("MUL", [x, cosine], IMAGE), m.add("MUL", [y, m.add("ABS", [sine])])])
    graph = m.graph(m.add("MAXIMUM", [m.add("MUL", [x, turned]), turned]))
    joined = apply(lambda g: inline_operands(rewritten("fuse", g)), graph)
    assert [len(node.epilogue) for node in joined.nodes] == [4, 2]
    assert_same_results(graph, joined)


def test_an_operand_that_only_broadcasts_is_read_as_it_is() -> None:
    m = Model()
    x, row = m.input(IMAGE), m.add("ABS", [m.input((7,))])
    graph = m.graph(m.add("SUB", [m.add("EXP", [x]), m.add("BROADCAST_TO", [row, m.ints(IMAGE)], IMAGE)]))
    joined = apply(lambda g: inline_operands(rewritten("fuse", g)), graph)
    assert [functions(node) for node in joined.nodes] == [["abs"], ["exp", "sub"]]
    assert_same_results(graph, joined)


def test_a_residual_sum_joins_the_convolution_behind_it() -> None:
    m = Model()
    skip = m.conv(m.input(IMAGE))
    last = m.conv(m.add("RELU", [skip]))
    graph = apply("fuse", m.graph(m.add("ADD", [skip, last])))
    fused = [(n.kind, functions(n)) for n in graph.nodes]
    assert fused == [("convolution", []), ("map", ["relu"]), ("convolution", ["add"])]


def test_a_chain_joins_step_by_step() -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    y = m.add("SUB", [m.input((7,)), m.add("ABS", [x])], IMAGE)
    (node,) = apply("fuse", m.graph(m.add("EXP", [y]))).nodes
    assert (node.kind, functions(node)) == ("convolution", ["abs", "sub", "exp"])


@pytest.mark.parametrize("code", ["SUB", "DIV", "MUL"])
def test_the_same_tensor_twice_is_read_right(code: str) -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    assert_same_results(graph := m.graph(m.add(code, [x, x])), optimize(graph))


def test_an_output_is_never_fused_away() -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    graph = apply("fuse", m.graph(m.add("ABS", [x]), x))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_a_broadcast_operand_is_no_producer_to_join() -> None:
    m = Model()
    x = m.input(IMAGE)
    row = m.conv(m.input((1, 1, 5, 3)))
    graph = apply("fuse", m.graph(m.add("ADD", [x, row])))
    assert kinds(graph) == {"convolution": 1, "map": 1}


def test_weights_that_are_no_constants_are_packed_once() -> None:
    """The op table tests the results of packed weights."""
    m = Model()
    x, weights = m.input(IMAGE), m.input((5, 3, 3, 7))
    graph = rewritten("pack_weights", m.graph(m.add("CONV_2D", [x, weights], (1, 4, 3, 5), **WINDOW)))
    verify(graph)
    assert kinds(graph) == {"gather": 1, "convolution": 1}
    assert graph[graph.nodes[-1].inputs[1]].shape == (3 * 3 * 8, 16)
    assert kinds(rewritten("pack_weights", graph)) == kinds(graph)


def test_constant_weights_and_depthwise_ones_stay() -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    y = m.add("DEPTHWISE_CONV_2D", [x, m.input((1, 3, 3, 7))], (1, 4, 3, 7), depth_multiplier=1, **WINDOW)
    graph = m.graph(y)
    assert kinds(rewritten("pack_weights", graph)) == kinds(graph)


def precise(graph: Graph) -> set[tuple[int, ...]]:
    return {t.shape for t in rewritten("keep_given_weights", graph).tensors.values() if t.precise}


def test_weights_that_are_inputs_stay_in_float_and_so_do_their_sums() -> None:
    m = Model()
    x = m.conv(m.input(IMAGE))
    weights = m.transpose(m.input((3, 3, 7, 5)), (3, 0, 1, 2))
    y = m.conv(m.add("CONV_2D", [x, weights], (1, 4, 3, 5), **WINDOW))
    assert precise(m.graph(y)) == {(3, 3, 7, 5), (5, 3, 3, 7), (1, 4, 3, 5)}


def test_weights_that_a_network_computes_are_stored_like_the_rest_of_it() -> None:
    m = Model()
    weights = m.add("ABS", [m.input((5, 3, 3, 7))])
    assert precise(m.graph(m.add("CONV_2D", [m.input(IMAGE), weights], (1, 4, 3, 5), **WINDOW))) == set()


def test_an_input_that_is_more_than_weights_is_stored_like_others() -> None:
    m = Model()
    weights = m.input((5, 3, 3, 7))
    y = m.add("CONV_2D", [m.input(IMAGE), weights], (1, 4, 3, 5), **WINDOW)
    assert precise(m.graph(y, m.add("ABS", [weights]))) == set()


def test_a_normalization_that_no_layer_takes_in_multiplies_and_adds_once() -> None:
    """Whatever its operators are, unless what they make of each other is no number."""
    m = Model()
    x = y = m.add("EXP", [m.input(IMAGE)])
    for code in ("SUB", "MUL", "MUL", "ADD"):
        y = m.add(code, [y, m.weights(7)])
    graph = apply("merge_affine", m.graph(y, m.add("ABS", [x])))
    assert sorted(functions(node) for node in graph.nodes) == [["abs"], ["exp"], ["mul", "add"]]
    assert [functions(node) for node in apply("merge_affine", m.graph(m.add("SUB", [m.weights(7), y]))).nodes] == [
        ["exp"],
        ["mul", "add"],
    ]
    large = m.add("MUL", [m.add("MUL", [x, m.weights(7, scale=1e30)]), m.weights(7, scale=1e30)])
    with np.errstate(over="ignore"):
        assert len(rewritten("merge_affine", m.graph(large)).nodes) == 3


def test_growing_concatenations_read_each_other() -> None:
    m = Model()
    parts, joined = [m.add("EXP", [m.input((1, 6, 5, 8))])], []
    for _ in range(3):
        parts.append(m.conv(joined[-1] if joined else parts[0], out=8))
        joined.append(m.add("CONCATENATION", parts, (1, 6, 5, 8 * len(parts)), axis=3))
    graph = apply("nest_concatenations", m.graph(*(m.add("ABS", [x]) for x in joined)))
    assert [len(n.inputs) for n in graph.nodes if n.kind == "concatenate"] == [2, 2, 2]
    plan = plan_of(m.finish([m.add("SOFTMAX", [x], beta=1.0) for x in joined]))
    assert "concatenate" not in [k.node.kind for k in plan.kernels]


GRID = (0.05, -20.0, -128.0, 127.0)


@pytest.mark.parametrize(
    ("ops", "merged"),
    [
        ([("relu6", ()), ("fake_quantize", GRID)], [("fake_quantize", (0.05, -20.0, -20.0, 100.0))]),
        ([("relu", ()), ("fake_quantize", GRID)], [("fake_quantize", (0.05, -20.0, -20.0, 127.0))]),
        ([("clamp", (-1.0, 9.0)), ("fake_quantize", GRID)], [("fake_quantize", (0.05, -20.0, -40.0, 127.0))]),
        ([("relu", ()), *[("fake_quantize", GRID)] * 2], [("fake_quantize", (0.05, -20.0, -20.0, 127.0))]),
        ([("fake_quantize", GRID), ("fake_quantize", (0.1, *GRID[1:]))], None),
        ([("tanh", ()), ("fake_quantize", GRID)], None),
    ],
    ids=str,
)
def test_rounding_takes_in_the_clamp_before_it(
    ops: list[tuple[str, tuple[float, ...]]], merged: list[tuple[str, tuple[float, ...]]] | None
) -> None:
    def chain(ops: list[tuple[str, tuple[float, ...]]]) -> tuple[EpilogueOp, ...]:
        steps = tuple(EpilogueOp(f, (Value(k),), parameters) for k, (f, parameters) in enumerate(ops))
        last = Value(len(steps))
        return (*steps, EpilogueOp("mul", (last, last)), EpilogueOp("add", (Value(len(steps) + 1), last)))

    m = Model()
    graph = m.graph(m.add("RELU", [m.input((1, 3, 5, 4))]))
    graph = graph.with_nodes([replace(graph.nodes[0], epilogue=chain(ops))])
    result = rewritten("merge_rounding", graph)
    assert result.nodes[0].epilogue == chain(merged or ops)
    assert_same_results(graph, result)


def test_a_clamped_value_with_another_reader_is_kept() -> None:
    epilogue = (
        EpilogueOp("relu6", (Value(0),)),
        EpilogueOp("fake_quantize", (Value(1),), GRID),
        EpilogueOp("add", (Value(2), Value(1))),
    )
    m = Model()
    graph = m.graph(m.add("RELU", [m.input((1, 3, 5, 4))]))
    graph = graph.with_nodes([replace(graph.nodes[0], epilogue=epilogue)])
    assert rewritten("merge_rounding", graph).nodes[0].epilogue == epilogue


def test_a_view_has_the_type_of_its_source() -> None:
    """Whole numbers of 16 bits take no function to become others of 32, but are stored in half of the bytes."""
    builder = Builder()
    x = builder.add("CAST", [builder.input((6, 3, 1), "int16")], None, "int32")
    graph = graph_of(builder.finish([builder.add("RESHAPE", [x, builder.ints([6, 1, 3, 1])], (6, 1, 3, 1), "int32")]))
    assert [graph[node.inputs[0]].dtype for node in graph.nodes if node.is_view] == ["int32"]


@pytest.mark.parametrize("code", ["SCATTER_ND", "ARG_MAX"])
def test_functions_of_bits_may_follow_any_kernel(code: str) -> None:
    """They are tried on integers alone, wherever rounding to half is judged."""
    builder = Builder()
    x = builder.input((2, 3), "int32" if code == "SCATTER_ND" else "float32")
    if code == "SCATTER_ND":
        result = builder.add(code, [builder.ints([[1], [0]]), x, builder.ints([2, 3])], (2, 3), "int32")
    else:
        result = builder.add(code, [x, builder.ints([0])], (3,), "int32", output_type="int32")
    result = builder.add("BITWISE_XOR", [result, builder.ints([5])], None, "int32")
    result = builder.add("EQUAL", [result, builder.ints([7])], None, "bool")
    graph = graph_of(builder.finish([result]))
    assert functions(graph.nodes[-1]) == ["bitwise_xor", "equal"]
