"""Quantized activations are stored on their grids on CPUs: as integers of 8 bits, a quarter of the bytes of floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Graph, Node, TensorId, Value, roots
from tflgpu.kernels.architecture import lowering_of
from tflgpu.kernels.kernel import Grid
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.arithmetic.reduction import Reduce
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
