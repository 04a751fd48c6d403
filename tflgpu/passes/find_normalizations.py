"""Make one node of the operators that spell a softmax, a layer normalization, or a sum of squares.

Converters write a softmax along any axis but the last as differences from the greatest element, their exponentials and
quotients. A softmax of the last axis is one kernel; what moves the axis there and back often meets other movements and
vanishes.

Converters write a layer normalization as some ten operators, in several ways. Here a tensor is known by what it holds
of a tensor x, and the node that completes ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` becomes all of it.
So does the one that completes ``x / sqrt(mean square + epsilon) * gamma`` (RMSNorm). What counts is the algebra: powers
of 2, 0.5 and -0.5 are squares and roots, and a sum or any other multiple of a mean square is as good as the mean.
A tensor with any other operator on its way from x is not known, so nothing else can become a normalization.

Of a sum or mean of squares in one node no square is stored: half holds none of a number above 255.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose, prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, TensorId, Value, joint_sources
from tflgpu.graph.layout import without_units
from tflgpu.graph.rewrite_rules import Built, Draft, Match, NewTensors, Rule, Rules, op
from tflgpu.ops.arithmetic.reduction import LayerNorm, Reduce, Softmax
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def _find(match: Match) -> Built:
    """Replace the quotients at the end of a softmax by a node that computes all of it."""
    found = _softmax(match.graph, match.node)
    return None if found is None else list(_along(match.graph, *found, match.node))


find_softmaxes = Rules((Rule("find_softmaxes", op("map"), _find),))


def _softmax(graph: Draft, last: Node) -> tuple[list[Node], TensorId, int] | None:
    """Return the nodes before ``last`` of the softmax that it ends, what it is of, and the axis; None if it ends
    none."""
    quotient = _operands(last, "div")
    exponential = graph.producer.get(quotient[0]) if quotient else None
    if quotient is None or exponential is None or graph[quotient[0]].shape != graph[last.output].shape:
        return None
    sums, total = _reduced(graph, quotient[1], "sum")
    exponent = _operands(exponential, "exp")
    difference = graph.producer.get(exponent[0]) if exponent else None
    terms = _operands(difference, "sub") if difference is not None else None
    if total is None or difference is None or terms is None:
        return None
    greatest, most = _reduced(graph, terms[1], "max")
    if most is None or total.inputs[0] != exponential.output or most.inputs[0] != terms[0]:
        return None
    x = graph[terms[0]]
    axes = [_axes(graph, n) for n in (most, total)]
    if axes[0] != axes[1] or len(axes[0]) != 1 or x.shape != graph[last.output].shape or x.dtype != "float32":
        return None
    kept = tuple(1 if i == axes[0][0] else size for i, size in enumerate(x.shape))
    if any(without_units(graph[t].shape) != without_units(kept) for t in (quotient[1], terms[1])):
        return None
    return [*greatest, difference, exponential, *sums], x.id, axes[0][0]


def _operands(node: Node, function: str) -> list[TensorId] | None:
    """Return what a node computes nothing but ``function`` of; None if it computes anything else."""
    if node.kind != "map" or [op.function for op in node.epilogue] != [function]:
        return None
    return [node.inputs[o.index if isinstance(o, Input) else 0] for o in node.epilogue[0].operands]


def _reduced(graph: Draft, tensor: TensorId, function: str) -> tuple[list[Node], Node | None]:
    """Return the reduction that a tensor is, perhaps in another shape or limited below; and all nodes up to it."""
    nodes = list[Node]()
    while (node := graph.producer.get(tensor)) is not None:
        nodes.append(node)
        if isinstance(node.attributes, Reduce):
            return nodes, node if node.attributes.function == function and not node.epilogue else None
        if (node.kind != "reshape" or node.epilogue) and not (function == "max" and _limits_nothing(graph, node)):
            break
        tensor = node.inputs[0]
    return nodes, None


def _limits_nothing(graph: Draft, node: Node) -> bool:
    """Whether a node takes the greater of its first input and the least number there is."""
    operands = _operands(node, "maximum")
    limit = graph.constant(operands[1]) if operands and operands[0] == node.inputs[0] else None
    same = graph[node.output].shape == graph[node.inputs[0]].shape
    return same and limit is not None and bool(np.all(limit <= np.finfo(np.float32).min))


def _axes(graph: Draft, node: Node) -> list[int]:
    """Return the axes of more than one element that a reduction is along."""
    assert isinstance(node.attributes, Reduce)
    return [axis for axis in node.attributes.axes if graph[node.inputs[0]].shape[axis] > 1]


def _along(graph: Draft, parts: Sequence[Node], x: TensorId, axis: int, last: Node) -> Iterator[Node]:
    """Yield the softmax of ``x`` along ``axis``."""
    sources, shape = joint_sources(*parts[::-1], last), graph[x].shape
    softmax = Node("softmax", (x,), last.output, Softmax(1.0), sources=sources)
    if axis == len(shape) - 1:
        yield softmax
        return
    order = [*(i for i in range(len(shape)) if i != axis), axis]
    moved = tuple(shape[i] for i in order)
    operand, result = (graph.new.like(graph[t], moved) for t in (x, last.output))
    yield Node("rearrange", (x,), operand.id, Rearrange(tuple(AxisMap(order.index(i)) for i in range(len(shape)))))
    yield replace(softmax, inputs=(operand.id,), output=result.id)
    yield Node("rearrange", (result.id,), last.output, Rearrange(tuple(map(AxisMap, order))), sources=sources)


# The meaning of a function's result, by the function and the meanings of its operands; "x" and "constant" stand for
# such tensors, all others for Known.holds. Numbers stand for constants of that value.
RULES: Mapping[tuple[str | float, ...], str] = {
    ("square", "x"): "x squared",
    ("abs", "x"): "absolute",
    ("square", "absolute"): "x squared",
    ("square", "mean"): "squared mean",
    ("sub", "mean square", "squared mean"): "variance",
    ("maximum", "variance", 0.0): "variance",
    ("sub", "x", "mean"): "centered",
    ("squared_difference", "x", "mean"): "squares",
    ("square", "centered"): "squares",
    ("add", "variance", "constant"): "shifted",
    ("sqrt", "shifted"): "deviation",
    ("rsqrt", "shifted"): "scale",
    ("div", "constant", "deviation"): "scale",
    ("reciprocal", "deviation"): "scale",
    ("mul", "scale", "constant"): "scale",
    ("mul", "x", "scale"): "scaled",
    ("mul", "mean", "scale"): "scaled mean",
    ("neg", "scaled mean"): "offset",
    ("sub", "constant", "scaled mean"): "offset",
    ("add", "scaled", "offset"): "normalized",
    ("sub", "scaled", "scaled mean"): "normalized",
    ("mul", "centered", "constant"): "weighted difference",
    ("mul", "weighted difference", "scale"): "normalized",
    ("div", "weighted difference", "deviation"): "normalized",
    ("mul", "centered", "scale"): "normalized",
    ("div", "centered", "deviation"): "normalized",
    ("add", "mean square", "constant"): "shifted square",
    ("sqrt", "shifted square"): "magnitude",
    ("rsqrt", "shifted square"): "quotient",
    ("div", "constant", "magnitude"): "quotient",
    ("reciprocal", "magnitude"): "quotient",
    ("mul", "quotient", "constant"): "quotient",
    ("mul", "x", "constant"): "weighted",
    ("mul", "weighted", "quotient"): "divided",
    ("div", "weighted", "magnitude"): "divided",
    ("mul", "x", "quotient"): "divided",
    ("div", "x", "magnitude"): "divided",
}
SYMMETRIC = ("add", "mul", "squared_difference", "maximum")
FIRST = ("square", "abs", "mul")  # the first of what is made of a tensor of which nothing is known

# Functions by another name, by the exponent of a power.
POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}

# Meanings that hold for a multiple, too: a sum, or a product with a number, changes Known.multiple.
MULTIPLES = ("mean", "squared mean", "x squared", "squares", "mean square", "variance")

# Meanings of products with a constant.
WEIGHTED = ("scale", "quotient", "weighted", "weighted difference")

# Part by which 1 / n times n is not 1.
ROUNDING = 1e-5


@dataclass(frozen=True)
class Known:
    """Contents of a tensor in terms of the rows of ``x``, which lie along its last axis.

    holds: the mean m; absolute: of x; weighted: x * gamma; centered: x - m; squares: (x - m)^2; variance: their mean;
        shifted: variance + epsilon;
        deviation: its root; scale: gamma / deviation; scaled: x * scale; scaled mean: m * scale; offset: beta - m *
        scale; normalized: x * scale + offset. Of the root mean square: mean square: of x; shifted square: with
        epsilon; magnitude: its root; quotient: gamma / magnitude; divided: x * quotient.
    multiple: the tensor holds so many times that; of a root, so many times what it is the root of.
    epsilon: once it is added. gamma, beta: constants; None for 1 and 0.
    """

    holds: str
    x: TensorId
    multiple: float = 1.0
    epsilon: float | None = None
    gamma: TensorId | None = None
    beta: TensorId | None = None


def find_layer_norms(graph: Graph) -> Graph:
    """Replace the last node of each layer normalization by one that computes all of it."""
    known: dict[TensorId, Known] = {}
    nodes: list[Node] = []
    new = NewTensors(graph)
    for node in graph.nodes:
        found = _known(graph, node, known)
        if found is not None:
            known[node.output] = found
            if found.holds in ("normalized", "divided"):
                node = _layer_norm(graph, node, found, new)
        nodes.append(node)
    return graph.with_nodes(nodes, new)


def _layer_norm(graph: Graph, last: Node, found: Known, new: NewTensors) -> Node:
    """Return the node that computes what ``last`` completes. Factor and offset are its epilogue."""
    assert found.epsilon is not None
    gamma = found.gamma
    if not isclose(found.multiple, 1, rel_tol=ROUNDING):
        factor = 1.0 if gamma is None else graph.constant(gamma)
        gamma = new.constant(np.asarray(factor * found.multiple**-0.5, np.float32))
    inputs, epilogue = [found.x], list[EpilogueOp]()
    for function, constant, neutral in (("mul", gamma, 1), ("add", found.beta, 0)):
        if constant is not None and not (constant in graph.tensors and np.all(graph.constant(constant) == neutral)):
            epilogue.append(EpilogueOp(function, (Value(len(epilogue)), Input(len(inputs)))))
            inputs.append(constant)
    sources = tuple(sorted(_sources(graph, last, found.x)))
    attributes = LayerNorm(found.epsilon, centered=found.holds == "normalized")
    return Node("layer_norm", tuple(inputs), last.output, attributes, tuple(epilogue), sources)


def _sources(graph: Graph, last: Node, x: TensorId) -> set[int]:
    """Return the model's operators from ``x``, which is not among them, to ``last``."""
    sources, ahead, seen = set[int](), [last], {x}
    while ahead:
        node = ahead.pop()
        sources.update(node.sources)
        ahead += (graph.producer[t] for t in node.inputs if t not in seen and t in graph.producer)
        seen.update(node.inputs)
    return sources


def _known(graph: Graph, node: Node, known: Mapping[TensorId, Known]) -> Known | None:
    """Return what the result of ``node`` holds, by what its inputs hold."""
    if isinstance(node.attributes, Reduce) and not node.epilogue:
        return _mean(graph, node, known.get(node.inputs[0]))
    if node.kind == "reshape" and not node.epilogue:
        # The only number of a row stays that of the same row.
        found = known.get(node.inputs[0])
        rows = graph[found.x].shape if found else ()
        return found if rows and graph[node.output].size * rows[-1] == prod(rows) else None
    if node.kind != "map" or len(node.epilogue) != 1:
        return None
    (op,) = node.epilogue
    operands = [node.inputs[0 if isinstance(o, Value) else o.index] for o in op.operands]
    if not all(_is_aligned(graph, t, node.output, known) for t in operands):
        return None
    function, operands = _canonical(graph, op.function, operands)
    found = _multiplied(graph, function, operands, known) or _result(graph, node.output, function, operands, known)
    if found is None and function in SYMMETRIC:
        operands = operands[::-1]
        found = _multiplied(graph, function, operands, known) or _result(graph, node.output, function, operands, known)
    return found


def _mean(graph: Graph, node: Node, of: Known | None) -> Known | None:
    """Return a mean or a sum of the last axis: of squared differences from the mean, or of any other tensor."""
    source, attributes = graph[node.inputs[0]], node.attributes
    assert isinstance(attributes, Reduce)
    axes = [axis for axis in attributes.axes if source.shape[axis] > 1]
    is_mean = attributes.function in ("mean", "sum")
    if not is_mean or axes != [len(source.shape) - 1] or source.dtype != "float32":
        return None
    count = source.shape[-1] if attributes.function == "sum" else 1
    held = {"squares": "variance", "x squared": "mean square"}.get(of.holds) if of else None
    if of and held:
        return replace(of, holds=held, multiple=of.multiple * count)
    return Known("mean", source.id, float(count))


def _is_aligned(graph: Graph, tensor: TensorId, result: TensorId, known: Mapping[TensorId, Known]) -> bool:
    """Whether each element of an elementwise ``result`` is of the same row as that of its operand ``tensor``.

    In a result as large as x, the number of a row has size 1 along the last axis.
    """
    operand, shape = graph[tensor], graph[result].shape
    return operand.shape == shape or operand.is_constant or (tensor in known and operand.shape == (*shape[:-1], 1))


def _canonical(graph: Graph, function: str, operands: list[TensorId]) -> tuple[str, list[TensorId]]:
    """Return the same by the name that the rules have for it."""
    if function == "pow":
        return POWERS.get(_number(graph, operands[1]) or 0.0, function), operands[:1]
    if function == "mul" and operands[0] == operands[1]:
        return "square", operands[:1]
    return function, operands


def _multiplied(
    graph: Graph, function: str, operands: Sequence[TensorId], known: Mapping[TensorId, Known]
) -> Known | None:
    """Another multiple of what the first operand holds, if the second is a number."""
    found = known.get(operands[0])
    number = _number(graph, operands[1]) if function in ("mul", "div") else None
    if found is None or found.holds not in MULTIPLES or number is None or number <= 0:
        return None
    return replace(found, multiple=found.multiple * number if function == "mul" else found.multiple / number)


def _result(
    graph: Graph, output: TensorId, function: str, operands: Sequence[TensorId], known: Mapping[TensorId, Known]
) -> Known | None:
    """Return what ``function`` makes of its operands in this order, by the rules."""
    found = [known[t] for t in operands if t in known]
    tensors = [k.x for k in found if k.x in operands] + [k.x for k in found]
    tensors += operands[:1] if function in FIRST and not graph[operands[0]].is_constant else []
    for x in dict.fromkeys(tensors):
        result = _result_of(graph, output, function, operands, known, x)
        if result is not None:
            return result
    return None


def _result_of(
    graph: Graph,
    output: TensorId,
    function: str,
    operands: Sequence[TensorId],
    known: Mapping[TensorId, Known],
    x: TensorId,
) -> Known | None:
    """Return the same, if the rows are those of ``x``."""
    of_x = [known[t] for t in operands if t != x and t in known and known[t].x == x]
    names = [
        "x"
        if t == x
        else "constant"
        if graph[t].is_constant
        else known[t].holds
        if t in known and known[t].x == x
        else ""
        for t in operands
    ]
    numbers = (n if (n := _number(graph, t)) is not None else name for t, name in zip(operands, names, strict=True))
    holds = RULES.get((function, *names)) or RULES.get((function, *numbers))
    if holds is None:
        return None
    found = _joined(holds, function, x, of_x)
    constant = next((t for t, name in zip(operands, names, strict=True) if name == "constant"), None)
    if found is None or constant is None or holds == "variance":
        return found
    value = graph[constant]
    assert value.data is not None
    of_channels = graph[output].shape == graph[x].shape and value.shape[-1:] == graph[x].shape[-1:] == (value.size,)
    if holds in ("shifted", "shifted square") and value.size == 1:
        return replace(found, epsilon=float(value.data.item()) / found.multiple)
    if holds in WEIGHTED and found.gamma is None and (value.size == 1 or of_channels):
        return replace(found, gamma=constant)
    if holds == "offset" and (value.size == 1 or of_channels):
        return replace(found, beta=constant)
    return None


def _joined(holds: str, function: str, x: TensorId, parts: Sequence[Known]) -> Known | None:
    """Return what is known of the operands, together; None if they do not fit."""
    means = [k.multiple for k in parts if k.holds == "mean"]
    if function == "square":
        return Known(holds, x, parts[0].multiple ** 2 if parts else 1.0)
    if not all(isclose(each, 1, rel_tol=ROUNDING) for each in means):
        return None
    multiples = [k.multiple for k in parts if k.epsilon is not None] or [k.multiple for k in parts] or [1.0]
    epsilons = {k.epsilon for k in parts if k.epsilon is not None}
    gammas = {k.gamma for k in parts if k.gamma is not None}
    weighted = sum(k.holds.startswith("weighted") for k in parts) + any(
        k.epsilon is not None and k.gamma for k in parts
    )
    is_one = all(isclose(each, multiples[0], rel_tol=ROUNDING) for each in multiples)
    if not is_one or max(len(epsilons), len(gammas), weighted) > 1:
        return None
    beta = next((k.beta for k in parts if k.beta is not None), None)
    return Known(holds, x, multiples[0], min(epsilons, default=None), min(gammas, default=None), beta)


def _number(graph: Graph, tensor: TensorId) -> float | None:
    """Return the value of a constant of one element."""
    value = graph[tensor].data
    return float(value.item()) if value is not None and value.size == 1 else None


def _square(match: Match) -> Built:
    """Let a sum or mean of squares of floats, which nothing else reads, square what it reads."""
    graph, squares = match.graph, match["squares"]
    root = _root(graph, squares)
    if root is None:
        return None
    if not root.epilogue:
        return [_of_squares(match, root.inputs[0])]
    root = replace(root, output=graph.new.like(graph[squares.output], graph[squares.output].shape).id)
    return [root, _of_squares(match, root.output)]


def _adds(_: Draft, node: Node) -> bool:
    return isinstance(node.attributes, Reduce) and node.attributes.function in ("sum", "mean")


sum_squares = Rules((Rule("sum_squares", op("reduce", op("map", name="squares", alone=True), where=_adds), _square),))


def _root(graph: Draft, node: Node) -> Node | None:
    """Return the map node that computes what ``node`` gives the squares of; without an epilogue it only reads that."""
    *before, last = node.epilogue or (None,)
    result = graph[node.output]
    if last is None or result.dtype != "float32" or result.precise:
        return None
    if last.function == "squared_difference":
        return replace(node, epilogue=(*before, EpilogueOp("sub", last.operands)))
    if not _squares(graph, node, last):
        return None
    root = last.operands[0]
    if before:
        return replace(node, epilogue=tuple(before)) if root == Value(len(before)) else None
    if not isinstance(root, Value) or graph[node.inputs[0]].shape != result.shape:
        return None
    return replace(node, epilogue=())


def _squares(graph: Draft, node: Node, last: EpilogueOp) -> bool:
    """Whether an epilogue op gives the square of its first operand."""
    first, *others = last.operands
    if last.function == "pow" and isinstance(others[0], Input):
        exponent = graph.constant(node.inputs[others[0].index])
        return exponent is not None and bool(np.all(exponent == 2))
    return last.function == "square" or (last.function == "mul" and others == [first])


def _of_squares(match: Match, source: TensorId) -> Node:
    """Return the reduction of the squares of ``source``."""
    graph, node = match.graph, match.node
    attributes = node.attributes
    assert isinstance(attributes, Reduce)
    epilogue, inputs = node.epilogue, (source, *node.inputs[1:])
    if attributes.function == "mean":
        count = prod(graph[node.inputs[0]].shape[axis] for axis in attributes.axes)
        inputs = (*inputs, graph.new.constant(np.array(1 / count, np.float32)))
        divided = EpilogueOp("mul", (Value(0), Input(len(inputs) - 1)))
        after = (op.moved(lambda o: Value(o.index + 1) if isinstance(o, Value) else o) for op in epilogue)
        epilogue = (divided, *after)
    return Node(
        "reduce",
        inputs,
        node.output,
        replace(attributes, function="sum_of_squares"),
        epilogue,
        joint_sources(match["squares"], node),
    )
