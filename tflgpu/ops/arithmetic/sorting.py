"""STABLEHLO_SORT: operands in the order of one or several of them, by a comparator that is a subgraph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.model.model import Operator, Subgraph
from tflgpu.ops.arithmetic.scan import CumulativeSum, TopK, true_places
from tflgpu.ops.declaration import ANY, NUMBERS, Emitter, Site, declare, judged, normal_axis, sized
from tflgpu.ops.movement.indexing import Gather, Lookup, Position, follow
from tflgpu.ops.movement.scatter import scattered
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node
from tflgpu.ops.sized import Number, Refused, Results, SizedOperation

# For each comparison of a first element with a second one: whether the first comes first if it is less.
COMPARISONS = {"LESS": True, "LESS_EQUAL": True, "GREATER": False, "GREATER_EQUAL": False}

# The comparison directions of STABLEHLO_COMPARE by number.
DIRECTIONS = ("EQUAL", "NOT_EQUAL", "GREATER_EQUAL", "GREATER", "LESS_EQUAL", "LESS")

# Operators that give their input, or numbers in the same order.
KEEP_ORDER = frozenset(("CAST", "STABLEHLO_CONVERT", "RESHAPE", "STABLEHLO_RESHAPE", "DEQUANTIZE"))


@dataclass(frozen=True)
class Key:
    """An operand that decides an order, by its number."""

    operand: int
    ascends: bool


class _Comparator:
    """Reads a comparator: of two elements each of several operands, whether the first ones come before the others."""

    def __init__(self, subgraph: Subgraph) -> None:
        self.places = {tensor: number for number, tensor in enumerate(subgraph.inputs)}
        self.makers = {tensor: operator for operator in subgraph.operators for tensor in operator.outputs}
        (self.result,) = subgraph.outputs

    def keys(self, tensor: int) -> list[Key] | None:
        """Return the keys by which a boolean of the comparator compares, the first of which decides; None if
        unknown."""
        operator = self.makers.get(tensor)
        if operator is None:
            return None
        code = self.comparison(operator)
        if code in COMPARISONS:
            compared = self.compared(operator)
            return None if compared is None else [Key(compared[0], COMPARISONS[code] == compared[1])]
        match operator.code:
            case "LOGICAL_OR" | "STABLEHLO_OR":  # first < second or (first == second and ...)
                first, second = (self.makers.get(t) for t in operator.inputs)
                if second is None or second.code not in ("LOGICAL_AND", "STABLEHLO_AND"):
                    first, second = second, first
                if first is None or second is None or second.code not in ("LOGICAL_AND", "STABLEHLO_AND"):
                    return None
                equal, then = second.inputs
                if not self.is_equality(equal):
                    equal, then = then, equal
                return self.chained(first.outputs[0], equal, then)
            case "SELECT" | "SELECT_V2" | "STABLEHLO_SELECT":  # if first == second then ... else first < second
                return self.chained(operator.inputs[2], operator.inputs[0], operator.inputs[1])
        return None

    def chained(self, first: int, equal: int, then: int) -> list[Key] | None:
        """Return the keys of a comparison ``first``, and of ``then`` where its elements are equal."""
        before, after, operator = self.keys(first), self.keys(then), self.makers.get(equal)
        if before is None or after is None or operator is None or not self.is_equality(equal):
            return None
        compared = self.compared(operator)
        return None if compared is None or len(before) > 1 or compared[0] != before[0].operand else [*before, *after]

    def is_equality(self, tensor: int) -> bool:
        operator = self.makers.get(tensor)
        return operator is not None and self.comparison(operator) == "EQUAL"

    def comparison(self, operator: Operator) -> str:
        """Which comparison an operator is, under the name of TFLite's operator."""
        if operator.code == "STABLEHLO_COMPARE":
            return DIRECTIONS[operator.options.get("comparison_direction", 0)]
        return operator.code

    def compared(self, operator: Operator) -> tuple[int, bool] | None:
        """Return the operand whose two elements are compared, and whether the first element comes first."""
        places = [self.place(tensor) for tensor in operator.inputs]
        if len(places) != 2 or None in places:
            return None
        first, second = (judged(place) for place in places)
        return (first // 2, first < second) if first // 2 == second // 2 and first != second else None

    def place(self, tensor: int) -> int | None:
        """Return the number of the input that a tensor is."""
        while tensor not in self.places:
            operator = self.makers.get(tensor)
            if operator is None or operator.code not in KEEP_ORDER:
                return None
            tensor = operator.inputs[0]
        return self.places[tensor]


def _keys(site: Site) -> list[Key] | None:
    """By what a sort goes, the first of which decides; None for another comparator."""
    if len(site.called) != 1:
        return None
    comparator = site.called[0]
    if len(comparator.outputs) != 1 or len(comparator.inputs) != 2 * len(site.inputs):
        return None
    reader = _Comparator(comparator)
    return reader.keys(reader.result)


def _reasons(site: Site) -> Iterator[str]:
    shapes = {t.shape for t in site.inputs if t is not None}
    shape = site.input(0).shape
    if len(shapes) > 1:
        yield f"its operands have shapes {', '.join(str(list(s)) for s in sorted(shapes))}; one was expected"
    elif normal_axis(site.options.get("dimension", 0), len(shape)) is None:
        yield f"its dimension {site.options.get('dimension', 0)} is not an axis of its operands {list(shape)}"
    keys = _keys(site)
    if keys is None:
        yield "its comparator is no comparison of elements of its operands, one operand after the other"
    elif any(site.input(key.operand).dtype in ("float64", "float16") for key in keys):
        yield "it sorts by floats of 16 or 64 bits"


@declare("STABLEHLO_SORT", versions=1, inputs=(1, 1 << 16), types=ANY, reasons=_reasons)
def stablehlo_sort(site: Site, emit: Emitter) -> list[Tensor]:
    """Elements of all operands along an axis in one order; equal ones keep theirs."""
    operands = [site.input(i) for i in range(len(site.inputs))]
    shape = operands[0].shape
    axis = judged(normal_axis(site.options.get("dimension", 0), len(shape)))
    if 0 in shape:
        return [emit.node("map", [x], shape) for x in operands]
    order: Tensor | None = None
    for key in reversed(judged(_keys(site))):  # the last one first: later sorts keep what it decided
        last = _moved(emit, operands[key.operand], axis, len(shape) - 1)
        found = order_of(emit, last if order is None else _taken(emit, last, order, len(shape) - 1), key.ascends)
        order = found if order is None else _taken(emit, order, found, len(shape) - 1)
    assert order is not None
    return [_taken(emit, x, order, axis) for x in operands]


def order_of(emit: Emitter, x: Tensor, ascends: bool) -> Tensor:
    """Return for each place along the last axis the place of the element that sorting brings there, int32.

    Args:
        emit: Gets the nodes.
        x: The keys.
        ascends: Whether the least key comes first.
    """
    steps: tuple[EpilogueOp, ...] = ()
    inputs, dtype = [x], x.dtype
    if x.dtype == "bool":  # booleans are 1, but 255 in the simulator Oclgrind
        inputs, dtype = [x, emit.constant(np.array(0, np.int32))], "int32"
        steps = (EpilogueOp("not_equal", (Value(0), Input(1))),)
    elif x.dtype in ("int8", "uint8", "int16", "uint16"):
        dtype = "int32"
    elif x.dtype == "uint32":
        steps, dtype = (EpilogueOp("to_long", (Value(0),)),), "int64"
    if ascends and dtype == "float32":
        steps = (*steps, EpilogueOp("neg", (Value(len(steps)),)))
    elif ascends:  # the least integer has no negative
        inputs.append(emit.constant(np.array(-1, dtype)))
        steps = (*steps, EpilogueOp("bitwise_xor", (Value(len(steps)), Input(len(inputs) - 1))))
    keys = emit.node("map", inputs, x.shape, None, steps, dtype, precise=True) if steps or dtype != x.dtype else x
    return emit.node("top_k", [keys], x.shape, TopK("indices"), dtype="int32")


def _moved(emit: Emitter, x: Tensor, axis: int, to: int) -> Tensor:
    """``x`` with one of its axes at another place."""
    order = [i for i in range(len(x.shape)) if i != axis]
    order.insert(to, axis)
    if order == sorted(order):
        return x
    maps = tuple(AxisMap(order.index(i)) for i in range(len(order)))
    return emit.node("rearrange", [x], tuple(x.shape[i] for i in order), Rearrange(maps))


def _taken(emit: Emitter, x: Tensor, order: Tensor, axis: int) -> Tensor:
    """Return the elements of ``x`` along an axis in an order, which has that axis last."""
    others = [i for i in range(len(x.shape)) if i != axis]
    positions = [follow(i) for i in range(len(x.shape))]
    positions[axis] = Position((Lookup(1, tuple(map(AxisMap, (*others, axis))), x.shape[axis] - 1),))
    return emit.node("gather", [x, order], x.shape, Gather(tuple(positions)))


@sized("UNIQUE")
def unique(op: SizedOperation) -> Results | None:
    """Elements in order show which are the first of their kind; a run counts these where they stood."""
    x, emit, wide = op.input(0), op.emit, op.site.options.get("idx_out_type") == 4
    if len(x.shape) != 1 or x.size == 0 or x.dtype not in NUMBERS:
        raise Refused(f"its input is {x.dtype} of shape {list(x.shape)}")
    meant = (
        op.sizes.is_meant(emit, op.open(0)[0], x.shape, 0) if op.open(0) else emit.constant(np.ones(x.size, np.bool_))
    )
    x = op.sizes.masked(emit, x, op.open(0), 0)
    order = order_of(emit, x, ascends=True)

    def looked_up(table: Tensor, places: Tensor) -> Tensor:
        positions = Gather((Position((Lookup(1, (AxisMap(0),), x.size - 1),)),))
        return emit.node("gather", [table, places], x.shape, positions, precise=True)

    def at_places(values: Tensor) -> Tensor:  # from the order of elements to where they stood
        rows = reshape_node(emit, values, (x.size, 1))
        return reshape_node(emit, scattered(emit, rows, order, (x.size, 1), "assign"), x.shape)

    def counted(truth: Tensor) -> Tensor:  # how many are true before each
        sums = emit.node("cumulative_sum", [truth], x.shape, CumulativeSum(0, exclusive=False, reverse=False))
        one = emit.constant(np.array(1, np.int32))
        return emit.node("map", [sums, one], x.shape, None, (EpilogueOp("sub", (Value(0), Input(1))),))

    ordered = looked_up(x, order)
    before = emit.node("rearrange", [ordered], x.shape, Rearrange((AxisMap(0, -1),), 0), precise=True)
    start = emit.constant(np.arange(x.size) == 0)
    differs = EpilogueOp("not_equal", (Value(0), Input(1))), EpilogueOp("logical_or", (Value(1), Input(2)))
    leads = emit.node("map", [ordered, before, start], x.shape, None, differs, "int32")
    both = EpilogueOp("logical_and", (Value(0), Input(1)))
    first = emit.node("map", [at_places(leads), meant], x.shape, None, (both,), "int32")
    places, count = true_places(emit, first)
    leaders, _ = true_places(emit, leads)
    kinds = looked_up(counted(first), looked_up(order, looked_up(leaders, counted(leads))))
    indices = at_places(kinds)
    if wide:
        indices = emit.node("map", [indices], x.shape, None, (EpilogueOp("to_long", (Value(0),)),), "int64")
    values = op.noted(looked_up(x, places), {0: Number(count.id, 0, count, 0, x.size)})
    return [values, op.noted(indices, op.open(0))]
