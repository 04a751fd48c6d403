"""Quantized activations: stored as integers on their grids on CPUs, and as whole numbers in half precision.

Half precision holds the integers of an 8-bit quantized model exactly, but rounds the numbers that they stand for. So
weights, and activations that only convolutions read, are stored as these integers, and a convolution multiplies its sum
by their scale. A power of two stays with the integers, so that sums have about the size that they had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Graph, Input, Node, Operand, Tensor, TensorId, Value, roots
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.architecture import lowering_of
from tflgpu.kernels.kernel import Grid, Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.image.convolution import output_channel_axis
from tflgpu.ops.image.window import Pool

INTEGERS = 256  # of a grid

# Integer types of graph inputs, and the least integer of each.
LEAST = {"int8": -128, "uint8": 0}

# Kinds of nodes whose results are elements of their inputs, or zero.
MOVE_ELEMENTS = frozenset(("concatenate", "gather", "map", "rearrange", "reshape", "strided"))


def store_on_grids(planning: Planning) -> Planning:
    """Store each activation on the grid that it was rounded to, wherever all kernels that read it can.

    What kernels only move stays on its grid. A rounding to the grid that a value is on already is left out.
    """
    if planning.target.family != "cpu":
        return planning
    graph, grids = _rounded_once(planning.graph)
    planning = replace(planning, graph=graph)
    root = roots(graph)
    kept = {root[t] for t in (*graph.given, *graph.wanted)} | _read_as_floats(planning, root)
    storage = {
        tensor: replace(planning.storage[tensor], type="uchar", grid=grids[origin])
        for tensor, origin in root.items()
        if origin in grids and origin not in kept and not graph[origin].precise
    }
    return replace(planning, storage={**planning.storage, **storage})


def _rounded_once(graph: Graph) -> tuple[Graph, dict[TensorId, Grid]]:
    """Return the graph without roundings that change nothing, and the grids that the values of tensors are on."""
    grids: dict[TensorId, Grid] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        grid = _rounding(graph, node) if node.epilogue else None
        moved = _moved(graph, grids, node)
        if grid is not None and grid == moved and len(node.epilogue) == 1 and not _is_narrowed(node.epilogue[0]):
            node = replace(node, epilogue=())
        elif not node.epilogue:
            grid = moved
        if grid is not None and not node.side_outputs:
            grids[node.output] = grid
        nodes.append(node)
    return graph.with_nodes(nodes), grids


def _rounding(graph: Graph, node: Node) -> Grid | None:
    """Return the grid of 8-bit integers that the last op of an epilogue rounds to.

    The limits tell the type of the integers: passes make tensors of which the file knows nothing.
    """
    last = node.epilogue[-1]
    match last.function, last.parameters:
        case "fake_quantize" | "requantize", (scale, zero, low, high, *_):
            least = LEAST["int8" if high < INTEGERS / 2 else "uint8"]  # activations may have narrowed the limits
            return _grid(scale, zero - least) if least <= low and high < least + INTEGERS else None
        case "dequantize", (scale, zero) if _is_of_integers(graph, node, last):
            return _grid(scale, zero - LEAST[graph[node.inputs[0]].dtype])
    return None


def _is_narrowed(op: EpilogueOp) -> bool:
    """Whether an op that rounds to a grid also has the limits of an activation."""
    return op.function != "dequantize" and op.parameters[3] - op.parameters[2] < INTEGERS - 1


def _is_of_integers(graph: Graph, node: Node, op: EpilogueOp) -> bool:
    """Whether an op takes 8-bit integers as a graph input has them."""
    return (
        node.kind == "map"
        and op.operands == (Value(0),)
        and len(node.epilogue) == 1
        and graph[node.inputs[0]].dtype in LEAST
    )


def _grid(scale: float, zero: float) -> Grid | None:
    """Return the grid with these numbers, if it has a zero, and single precision all that it stands for."""
    finite = np.finfo(np.float32).tiny <= scale <= np.finfo(np.float32).max / INTEGERS
    return Grid(scale, int(zero)) if finite and zero in range(INTEGERS) else None


def _moved(graph: Graph, grids: Mapping[TensorId, Grid], node: Node) -> Grid | None:
    """Return the grid of all elements that a node moves; None if it computes others, or moves those of several
    grids."""
    attributes = node.attributes
    if isinstance(attributes, Reduce | Pool):
        moves = attributes.function in ("max", "min", "maximum")
    else:
        moves = node.kind in MOVE_ELEMENTS and not getattr(attributes, "fill", None)
    moved = (i for k, i in enumerate(node.inputs) if k not in node.epilogue_inputs)
    found = {grids.get(i) for i in moved if graph[i].dtype == "float32"}
    return found.pop() if moves and len(found) == 1 else None


def _read_as_floats(planning: Planning, root: Mapping[TensorId, TensorId]) -> set[TensorId]:
    """Return the roots of what a kernel reads that takes no integers for floats."""
    found: set[TensorId] = set()
    for node in planning.graph.nodes:
        if node.is_view:
            continue
        read = (t for k, t in enumerate(node.inputs) if k not in node.epilogue_inputs and t in root)
        if not lowering_of(planning.request(node)).reads_grids:
            found.update(root[t] for t in read)
    return found


def without_division(epilogue: tuple[EpilogueOp, ...]) -> tuple[tuple[EpilogueOp, ...], float]:
    """Return an epilogue for a value 0 that is divided by the scale of the grid to which it rounds first.

    Args:
        epilogue: The node's.

    Returns:
        The epilogue and that scale; the same epilogue and 1 if it does anything else first.
    """
    if not epilogue or epilogue[0].function != "fake_quantize" or epilogue[0].operands != (Value(0),):
        return epilogue, 1.0
    rounding, *after = epilogue
    scale = rounding.parameters[0]
    if any(Value(0) in op.operands for op in after) or not np.finfo(np.float32).tiny <= scale < np.inf:
        return epilogue, 1.0
    return (replace(rounding, parameters=(*rounding.parameters, 1.0)), *after), scale


# Powers of two of which half precision holds every multiple by the difference of two 8-bit integers.
LEAST_EXPONENT, GREATEST_EXPONENT = -24, 8

# Epilogue ops whose results are multiples of their first parameter.
ROUNDING = ("dequantize", "requantize", "fake_quantize")


def keep_whole_numbers(planning: Planning) -> Planning:
    """Where weights are stored in half: ``conv(x, scale * q, bias)`` becomes ``conv(x, q, bias / scale) * scale``.

    An activation that is stored without its scale has that as its ``factor``.
    """
    if planning.target.storage != "half":
        return planning
    return replace(planning, graph=_WholeNumbers(planning.graph, planning.storage).run())


def _factor_of(scale: Array) -> Array:
    """Return the number from 1 to 2 that makes a scale of a power of two; 1 if half precision cannot hold its
    multiples."""
    fraction, exponent = np.frexp(scale)
    return np.where((scale > 0) & (exponent > LEAST_EXPONENT) & (exponent <= GREATEST_EXPONENT + 1), 2 * fraction, 1.0)


class _WholeNumbers:
    def __init__(self, graph: Graph, storage: Mapping[TensorId, Storage]) -> None:
        self._graph = graph
        self._storage = storage
        self._scaled: list[Tensor] = []
        self._constants = NewTensors(graph)
        self._factors: dict[TensorId, float] = {}  # of activations; of none that is stored as it is

    def run(self) -> Graph:
        with np.errstate(all="ignore"):  # scales may be anything; those that half cannot hold change nothing
            return self._graph.with_each(self._whole, chain(self._scaled, self._constants))

    def _whole(self, node: Node) -> Node:
        return self._divided(self._multiplied(node))

    def _divided(self, node: Node) -> Node:
        """Return the node, which stores its result without the factor of its scale, if that can be."""
        if not node.epilogue or node.epilogue[-1].function not in ROUNDING or not self._is_for_sums(node.output):
            return node
        last = node.epilogue[-1]
        scale, *others = last.parameters
        factor = _factor_of(np.array(scale)).item()
        self._factors[node.output] = factor
        self._scaled.append(replace(self._graph[node.output], factor=factor))
        divisor = (scale,) if last.function == "fake_quantize" and len(others) == 3 else ()
        return replace(
            node, epilogue=(*node.epilogue[:-1], replace(last, parameters=(scale / factor, *others, *divisor)))
        )

    def _is_for_sums(self, tensor: TensorId) -> bool:
        """Whether a tensor is stored in half, and only as the image of convolutions."""
        readers = self._graph.consumers.get(tensor, ())
        return (
            self._storage[tensor].type == "half"
            and tensor not in self._graph.wanted
            and all(self._sums(n) and tensor not in n.inputs[1:] and 0 not in n.epilogue_inputs for n in readers)
        )

    def _sums(self, node: Node) -> bool:
        """Whether a node is a convolution whose weights are stored in half."""
        precise = any(self._graph[t].precise for t in (*node.inputs, node.output))
        return output_channel_axis(node) is not None and not precise

    def _multiplied(self, node: Node) -> Node:
        """Return the node, which multiplies its sum by the factors of its image and its weights, if it is a
        convolution."""
        if not self._sums(node):
            return node
        weights, scale, factor = self._without_factor(node)
        factor = factor * self._factors.get(node.inputs[0], 1.0)
        if np.all(factor == 1.0):
            return node
        epilogue, divisor = without_division(node.epilogue)
        inputs = [*node.inputs, self._constant(factor / divisor)]
        if weights is not None:
            inputs[1] = self._constant(weights, scale)
        if len(node.inputs) > 2 and 2 not in node.epilogue_inputs:
            bias = self._graph.constant(node.inputs[2])
            assert bias is not None, "a bias that is no constant belongs into the epilogue"
            inputs[2] = self._constant(bias.reshape(-1) / factor)

        def behind(operand: Operand) -> Operand:
            return Value(operand.index + 1) if isinstance(operand, Value) else operand

        product = EpilogueOp("mul", (Value(0), Input(len(node.inputs))))
        return replace(node, inputs=tuple(inputs), epilogue=(product, *(op.moved(behind) for op in epilogue)))

    def _without_factor(self, node: Node) -> tuple[Array | None, Array | None, Array]:
        """Whole weights and their scale, None if there are none, and what multiplies each output channel of them."""
        weights, axis = self._graph[node.inputs[1]], output_channel_axis(node)
        channels = np.ones(self._graph[node.output].shape[-1])
        if weights.scale is None or axis is None:
            return None, None, channels
        factor = _factor_of(weights.scale)
        if factor.size not in (1, factor.shape[axis]):
            return None, None, channels
        scale = weights.scale / factor
        data = weights.data
        assert data is not None
        whole = np.rint(data / weights.scale) * scale
        return np.where(factor == 1.0, data, whole), scale, channels * factor.reshape(-1)

    def _constant(self, data: Array, scale: Array | None = None) -> TensorId:
        return self._constants.constant(data.astype(np.float32), scale)
