"""Make one node of the means and elementwise functions that normalize a tensor along its last axis.

Converters write a layer normalization as some ten operators, in several ways. Here a tensor is known by what it holds
of a tensor x, and the node that completes ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` becomes all of it.
So does the one that completes ``x / sqrt(mean square + epsilon) * gamma`` (RMSNorm).
A tensor with any other operator on its way from x is not known, so nothing else can become a normalization.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, TensorId, Value
from tflgpu.ops.arithmetic.layer_norm import LayerNorm
from tflgpu.ops.arithmetic.reduction import Reduce

# What a function makes of its operands; "x" and "constant" stand for such tensors, all others for Known.holds. Numbers
# stand for constants of that value.
RULES: Mapping[tuple[str | float, ...], str] = {
    ("square", "x"): "x squared",
    ("mul", "x", "x"): "x squared",
    ("pow", "x", 2.0): "x squared",
    ("square", "mean"): "squared mean",
    ("mul", "mean", "mean"): "squared mean",
    ("pow", "mean", 2.0): "squared mean",
    ("sub", "mean square", "squared mean"): "variance",
    ("maximum", "variance", 0.0): "variance",
    ("sub", "x", "mean"): "centered",
    ("squared_difference", "x", "mean"): "squares",
    ("square", "centered"): "squares",
    ("mul", "centered", "centered"): "squares",
    ("pow", "centered", 2.0): "squares",
    ("add", "variance", "constant"): "shifted",
    ("sqrt", "shifted"): "deviation",
    ("rsqrt", "shifted"): "scale",
    ("div", "constant", "deviation"): "scale",
    ("mul", "scale", "constant"): "scale",
    ("mul", "x", "scale"): "scaled",
    ("mul", "mean", "scale"): "scaled mean",
    ("neg", "scaled mean"): "offset",
    ("sub", "constant", "scaled mean"): "offset",
    ("add", "scaled", "offset"): "normalized",
    ("sub", "scaled", "scaled mean"): "normalized",
    ("mul", "centered", "scale"): "normalized",
    ("div", "centered", "deviation"): "normalized",
    ("add", "mean square", "constant"): "shifted square",
    ("sqrt", "shifted square"): "magnitude",
    ("rsqrt", "shifted square"): "quotient",
    ("div", "constant", "magnitude"): "quotient",
    ("mul", "quotient", "constant"): "quotient",
    ("mul", "x", "quotient"): "divided",
    ("div", "x", "magnitude"): "divided",
}
SYMMETRIC = ("add", "mul", "squared_difference", "maximum")
SQUARING = ("square", "mul", "pow")  # the first of what is made of a tensor of which nothing is known


@dataclass(frozen=True)
class Known:
    """What a tensor holds of the rows of ``x``, which lie along its last axis.

    holds: the mean m; centered: x - m; squares: (x - m)^2; variance: their mean; shifted: variance + epsilon;
        deviation: its root; scale: gamma / deviation; scaled: x * scale; scaled mean: m * scale; offset: beta - m *
        scale; normalized: x * scale + offset. Of the root mean square: mean square: of x; shifted square: with
        epsilon; magnitude: its root; quotient: gamma / magnitude; divided: x * quotient.
    epsilon: once it is added. gamma, beta: constants; None for 1 and 0.
    """

    holds: str
    x: TensorId
    epsilon: float | None = None
    gamma: TensorId | None = None
    beta: TensorId | None = None


def find_layer_norms(graph: Graph) -> Graph:
    """Replace the last node of each layer normalization by one that computes all of it."""
    known: dict[TensorId, Known] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        found = _known(graph, node, known)
        if found is not None:
            known[node.output] = found
            if found.holds in ("normalized", "divided"):
                node = _layer_norm(graph, node, found)
        nodes.append(node)
    return graph.with_nodes(nodes)


def _layer_norm(graph: Graph, last: Node, found: Known) -> Node:
    """The node that computes what ``last`` completes. Factor and offset are its epilogue."""
    assert found.epsilon is not None
    inputs, epilogue = [found.x], list[EpilogueOp]()
    for function, constant, neutral in (("mul", found.gamma, 1), ("add", found.beta, 0)):
        if constant is not None and not np.all(graph.constant(constant) == neutral):
            epilogue.append(EpilogueOp(function, (Value(len(epilogue)), Input(len(inputs)))))
            inputs.append(constant)
    sources = tuple(sorted(_sources(graph, last, found.x)))
    attributes = LayerNorm(found.epsilon, centered=found.holds == "normalized")
    return Node("layer_norm", tuple(inputs), last.output, attributes, tuple(epilogue), sources)


def _sources(graph: Graph, last: Node, x: TensorId) -> set[int]:
    """The model's operators from ``x``, which is not among them, to ``last``."""
    sources, ahead, seen = set[int](), [last], {x}
    while ahead:
        node = ahead.pop()
        sources.update(node.sources)
        ahead += (graph.producer[t] for t in node.inputs if t not in seen and t in graph.producer)
        seen.update(node.inputs)
    return sources


def _known(graph: Graph, node: Node, known: Mapping[TensorId, Known]) -> Known | None:
    """What the result of ``node`` holds, by what its inputs hold."""
    if isinstance(node.attributes, Reduce) and not node.epilogue:
        return _mean(graph, node, known.get(node.inputs[0]))
    if node.kind == "reshape" and not node.epilogue:
        # The only number of a row stays that of the same row.
        found = known.get(node.inputs[0])
        return found if found and graph[node.output].size * graph[found.x].shape[-1] == graph[found.x].size else None
    if node.kind != "map" or len(node.epilogue) != 1:
        return None
    (op,) = node.epilogue
    operands = [node.inputs[0 if isinstance(o, Value) else o.index] for o in op.operands]
    if not all(_is_aligned(graph, t, node.output, known) for t in operands):
        return None
    found = _result(graph, node.output, op.function, operands, known)
    if found is None and op.function in SYMMETRIC:
        found = _result(graph, node.output, op.function, operands[::-1], known)
    return found


def _mean(graph: Graph, node: Node, of: Known | None) -> Known | None:
    """A mean of the last axis: of squared differences from the mean, or of any other tensor."""
    source, attributes = graph[node.inputs[0]], node.attributes
    assert isinstance(attributes, Reduce)
    axes = [axis for axis in attributes.axes if source.shape[axis] > 1]
    if attributes.function != "mean" or axes != [len(source.shape) - 1] or source.dtype != "float32":
        return None
    held = {"squares": "variance", "x squared": "mean square"}.get(of.holds) if of else None
    return replace(of, holds=held) if of and held else Known("mean", source.id)


def _is_aligned(graph: Graph, tensor: TensorId, result: TensorId, known: Mapping[TensorId, Known]) -> bool:
    """Whether each element of an elementwise ``result`` is of the same row as that of its operand ``tensor``.

    In a result as large as x, the number of a row has size 1 along the last axis.
    """
    operand, shape = graph[tensor], graph[result].shape
    return operand.shape == shape or operand.is_constant or (tensor in known and operand.shape == (*shape[:-1], 1))


def _result(
    graph: Graph, output: TensorId, function: str, operands: Sequence[TensorId], known: Mapping[TensorId, Known]
) -> Known | None:
    """What ``function`` makes of its operands in this order, by the rules."""
    found = [known[t] for t in operands if t in known]
    tensors = [k.x for k in found if k.x in operands] + [k.x for k in found]
    tensors += operands[:1] if function in SQUARING and not graph[operands[0]].is_constant else []
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
    """The same, if the rows are those of ``x``."""
    of_x = [known[t] for t in operands if t in known and known[t].x == x]
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
    holds = RULES.get((function, *names)) or RULES.get(
        (function, *(_number(graph, t, n) for t, n in zip(operands, names, strict=True)))
    )
    details = {(k.epsilon, k.gamma) for k in of_x if k.epsilon is not None}
    if holds is None or len(details) > 1:
        return None
    epsilon, gamma = details.pop() if details else (None, None)
    beta = next((k.beta for k in of_x if k.beta is not None), None)
    constant = next((t for t, name in zip(operands, names, strict=True) if name == "constant"), None)
    if constant is None or holds in ("x squared", "squares", "squared mean", "variance"):
        return Known(holds, x, epsilon, gamma, beta)
    value = graph[constant]
    assert value.data is not None
    of_channels = graph[output].shape == graph[x].shape and value.shape[-1:] == graph[x].shape[-1:] == (value.size,)
    if holds in ("shifted", "shifted square") and value.size == 1:
        return Known(holds, x, float(value.data.item()))
    if holds in ("scale", "quotient") and gamma is None and (value.size == 1 or of_channels):
        return Known(holds, x, epsilon, constant)
    if holds == "offset" and (value.size == 1 or of_channels):
        return Known(holds, x, epsilon, gamma, constant)
    return None


def _number(graph: Graph, tensor: TensorId, name: str) -> str | float:
    """The value of a constant of one element instead of its name."""
    value = graph[tensor].data
    return float(value.item()) if value is not None and value.size == 1 else name
