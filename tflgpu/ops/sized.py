"""Sizes that only a run can tell, and what the rules of operators are made of that give or take such sizes.

In memory an open axis has an upper bound of its size. A rule, ``sized`` of an operator's declaration, gives the results
of an operator, whose open axes it notes; None if the operator's ``emit`` does it. It raises Refused where the device
cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from tflgpu.errors import UnsupportedError
from tflgpu.graph.ir import EpilogueOp, Input, Tensor, TensorId, Value
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import Emitter, Site, find_operator
from tflgpu.ops.limits import made_reasons
from tflgpu.ops.movement.shaping import AxisMap, Rearrange

Results = Tensor | Sequence[Tensor]

REST = -1  # as a size: all that there is

# Elements of a tensor that may be a shape, or a list of paddings.
MAX_ELEMENTS = 16

Elements = np.ndarray[Any, np.dtype[np.object_]]  # of Amount, in the tensor's shape


@dataclass(frozen=True)
class Number:
    """An integer that only a run can tell: element ``place`` (row-major) of tensor ``source``.

    low, high: what it is not below and not above; None where that is not known.
    """

    source: TensorId
    place: int
    tensor: Tensor = field(compare=False, repr=False)
    low: int | None = field(default=None, compare=False)
    high: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Amount:
    """``offset + factor * number``; just ``offset`` if there is no number."""

    offset: int
    factor: int = 0
    number: Number | None = None

    @property
    def known(self) -> int | None:
        """Its value, if that is known before a run."""
        return self.offset if self.number is None else None

    @property
    def low(self) -> int | None:
        """Lower bound of the integer."""
        return self._limit(least=True)

    @property
    def high(self) -> int | None:
        """Upper bound of the integer."""
        return self._limit(least=False)

    def _limit(self, least: bool) -> int | None:
        if self.number is None:
            return self.offset
        limit = self.number.low if least == (self.factor > 0) else self.number.high
        return None if limit is None else self.offset + self.factor * limit

    def plus(self, other: Amount, sign: int = 1) -> Amount | None:
        """Return ``self + sign * other``; None if these are two numbers.

        Args:
            other: Another amount.
            sign: 1 or -1.
        """
        offset = self.offset + sign * other.offset
        if other.number is None or other.number == self.number:
            factor = self.factor + (sign * other.factor if other.number else 0)
            return Amount(offset, factor, self.number) if factor else Amount(offset)
        return Amount(offset, sign * other.factor, other.number) if self.number is None else None

    def times(self, factor: int) -> Amount:
        """Return ``factor * self``.

        Args:
            factor: Any whole number.
        """
        return Amount(self.offset * factor, self.factor * factor, self.number) if factor else Amount(0)


def amount_of(number: Number) -> Amount:
    """Return the number itself."""
    return Amount(0, 1, number)


def elements_of(tensor: Tensor, found: Mapping[TensorId, Elements]) -> Elements | None:
    """Return the elements of a tensor of few integers; None of any other tensor.

    Args:
        tensor: Any tensor.
        found: Elements that are known, by tensor.
    """
    if tensor.id in found:
        return found[tensor.id]
    if tensor.dtype not in ("int32", "int64") or not 0 < tensor.size <= MAX_ELEMENTS:
        return None
    if tensor.data is not None:
        flat = [Amount(int(v)) for v in tensor.data.reshape(-1)]
    else:
        flat = [amount_of(Number(tensor.id, place, tensor)) for place in range(tensor.size)]
    return elements_array(flat, tensor.shape)


def elements_array(flat: Sequence[Any], shape: Sequence[int]) -> Elements:
    """Return integers as an array.

    Args:
        flat: Amounts, or anything else.
        shape: The array's.
    """
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(tuple(shape))


Open = Mapping[int, Number]  # the size of each open axis

NONE: Open = {}


class Refused(UnsupportedError):
    """A node or an operator that cannot take sizes that only a run can tell; says why."""

    def __init__(self, reason: str) -> None:
        super().__init__((reason,))


class Sizes:
    """The open axes of the tensors of a graph while it is lowered, and what is known of integers of which sizes follow.

    open: by tensor. elements: of tensors of few integers.
    """

    def __init__(self) -> None:
        self.open: dict[TensorId, Open] = {}
        self.elements: dict[TensorId, Elements] = {}
        self._made: dict[tuple[object, ...], Number] = {}
        self._amounts: dict[Number, Amount] = {}  # of which numbers were made

    def of(self, tensor: Tensor | None) -> Open:
        """Return the open axes of a tensor.

        Args:
            tensor: None has none.
        """
        return NONE if tensor is None else self.open.get(tensor.id, NONE)

    def amounts(self, tensor: Tensor) -> list[Amount] | None:
        """Return the elements of a tensor, flat, if it has few integers."""
        found = elements_of(tensor, self.elements)
        return None if found is None else list(found.reshape(-1))

    def number(self, emit: Emitter, amount: Amount, most: int) -> Number:
        """Return an amount as a scalar of int32. Equal amounts with equal limits are one number.

        Args:
            emit: Gets the nodes.
            amount: One that only a run can tell.
            most: The scalar is from 0 to this.
        """
        number = amount.number
        assert number is not None, "a size that is known needs no tensor"
        low, high = amount.low, amount.high
        fits = low is not None and low >= 0 and high is not None and high <= most
        if fits and amount == amount_of(number) and (number.tensor.shape, number.tensor.dtype) == ((), "int32"):
            return number
        limit = None if fits else most

        def make() -> Number:
            scalar = self.scalar(emit, amount, limit)
            return Number(scalar.id, 0, scalar, max(0, low or 0), most if high is None else min(most, high))

        made = self.once((amount, limit), make)
        if fits:
            self._amounts[made] = amount
        return made

    def size(self, number: Number) -> Amount:
        """Return what a number was made of that is the size of an axis."""
        return self._amounts.get(number, amount_of(number))

    def once(self, key: tuple[object, ...], make: Callable[[], Number]) -> Number:
        """Return a number that is made at most once.

        Args:
            key: Equal keys are one number.
            make: Makes it.
        """
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def scalar(self, emit: Emitter, amount: Amount, most: int | None = None) -> Tensor:
        """Return an amount as a scalar of int32.

        Args:
            emit: Gets the nodes.
            amount: One that only a run can tell.
            most: The scalar is from 0 to this; None for no limit.
        """
        number = amount.number
        assert number is not None
        source, place = number.tensor, np.unravel_index(number.place, number.tensor.shape)
        if source.shape:
            source = emit.node("rearrange", [source], (), Rearrange(tuple(AxisMap(None, int(i)) for i in place)))
        inputs, epilogue = [source], list[EpilogueOp]()

        def add(function: str, operand: int | None = None) -> None:
            operands: list[Value | Input] = [Value(len(epilogue))]
            if operand is not None:
                inputs.append(emit.constant(np.array(operand, np.int32)))
                operands.append(Input(len(inputs) - 1))
            epilogue.append(EpilogueOp(function, tuple(operands)))

        if source.dtype == "int64":
            add("to_index")
        if amount.factor != 1:
            add("mul", amount.factor)
        if amount.offset:
            add("add", amount.offset)
        if most is not None:
            add("maximum", 0)
            add("minimum", most)
        return emit.node("map", inputs, (), None, tuple(epilogue), "int32")

    def is_meant(self, emit: Emitter, size: Number, shape: Shape, axis: int) -> Tensor:
        """Return whether each place along an axis is one of the first; it broadcasts to the shape.

        Args:
            emit: Gets the node.
            size: How many places are meant.
            shape: A tensor's.
            axis: Along which places are counted.
        """
        along = tuple(d if i == axis else 1 for i, d in enumerate(shape))
        places = emit.constant(np.arange(shape[axis], dtype=np.int32).reshape(along))
        below = EpilogueOp("less", (Value(0), Input(1)))
        return emit.node("map", [places, size.tensor], along, None, (below,), "bool")

    def masked(self, emit: Emitter, x: Tensor, axes: Iterable[int], fill: float | int | bool) -> Tensor:
        """Return a tensor with other elements in place of those that are not meant along some axes.

        The other open axes stay open.

        Args:
            emit: Gets the nodes.
            x: A tensor.
            axes: Those that are open are masked.
            fill: The other elements.
        """
        known = self.of(x)
        axes = [axis for axis in axes if axis in known]
        value = emit.constant(np.array(fill, x.dtype)) if axes else None
        for axis in axes:
            meant = self.is_meant(emit, known[axis], x.shape, axis)
            choose = EpilogueOp("select", (Input(1), Value(0), Input(2)))
            x = emit.node("map", [x, meant, value], x.shape, None, (choose,), precise=x.precise)
        self.open[x.id] = {axis: size for axis, size in known.items() if axis not in axes}
        return x


@dataclass(frozen=True)
class SizedOperation:
    """An operator, what it adds to the graph, and what is known of sizes."""

    site: Site
    emit: Emitter
    sizes: Sizes

    def input(self, index: int) -> Tensor:
        """Return an input that is there.

        Args:
            index: The input's number.
        """
        return self.site.input(index)

    def open(self, index: int) -> Open:
        """Return the open axes of an input.

        Args:
            index: The input's number; an absent one has none.
        """
        return self.sizes.of(self.site.optional(index))

    def amounts(self, index: int) -> list[Amount]:
        """Return the elements of an input of few integers.

        Args:
            index: The input's number.

        Raises:
            Refused: It has a size that only a run can tell, or is something else.
        """
        if self.open(index):
            raise Refused(f"input {index} has a size that only a run can tell")
        found = self.sizes.amounts(self.input(index))
        if found is None:
            given = self.site.constant(index)
            if given is None or given.size:
                raise Refused(f"input {index} is no list of few integers")
            return []
        return found

    def number(self, amount: Amount, most: int) -> Number:
        """Return an amount as a size.

        Args:
            amount: One that only a run can tell.
            most: The size is from 0 to this.

        Raises:
            Refused: ``most`` is 0.
        """
        if most < 1:
            raise Refused("its result is always empty")
        return self.sizes.number(self.emit, amount, most)

    def noted(self, result: Tensor, known: Open) -> Tensor:
        """Return a result whose open axes are noted.

        Args:
            result: An output of a node.
            known: Its open axes.

        Raises:
            Refused: The result is much larger than the inputs.
        """
        grows = result.size > max((t.size for t in self.site.inputs if t is not None), default=0)
        if grows and (made := [*made_reasons(result.size)]):
            raise Refused(made[0])
        self.sizes.open[result.id] = known
        return result

    def declared(self, **inputs: Tensor) -> list[Tensor]:
        """Return what the operator's declaration gives with other inputs.

        Args:
            **inputs: By number after an underscore.

        Raises:
            Refused: The declaration does not allow these inputs.
        """
        op, _ = find_operator(self.site.code)
        assert op is not None
        given = [inputs.get(f"_{i}", t) for i, t in enumerate(self.site.inputs)]
        site = replace(self.site, inputs=tuple(given))
        if reasons := op.obstacles(site):
            raise Refused(reasons[0])
        results = op.emit(site, self.emit)
        return [results] if isinstance(results, Tensor) else list(results)

    def computed(self, x: Tensor, known: Open) -> Tensor:
        """Return a tensor as something that a run computes: what is constant seems to have a size that is known.

        Args:
            x: A tensor.
            known: Its open axes.
        """
        axis = min(known)
        self.sizes.open[x.id] = known
        masked = self.sizes.masked(self.emit, x, (axis,), 0)
        self.sizes.open[masked.id] = known
        return masked


def bound(amount: Amount) -> int:
    """Return the greatest size that an amount may be. Raises Refused without one."""
    if amount.high is None:
        raise Refused("nothing says how large its result can be")
    return max(0, amount.high)


def sized_shape(op: SizedOperation, amounts: Sequence[Amount]) -> tuple[list[int], dict[int, Number]]:
    """Return a shape of known sizes and bounds, and the open axes.

    Args:
        op: The operator.
        amounts: The sizes of its result.

    Raises:
        Refused: A size is less than 1, or the result is too large.
    """
    shape = [bound(amount) if amount.known is None else amount.known for amount in amounts]
    if min(shape, default=1) < 1 or [*made_reasons(prod(shape))]:
        raise Refused(f"its result would have the shape {shape}")
    sizes = zip(amounts, shape, strict=True)
    return shape, {axis: op.number(a, most) for axis, (a, most) in enumerate(sizes) if a.known is None}
