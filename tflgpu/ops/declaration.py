"""How an operator is declared: what a family module registers, and what lowering hands to it.

A declaration has two functions. ``reasons`` says why the operator cannot run on the device, one sentence an obstacle;
``emit`` builds nodes and is called only when there was none, so it cannot fail. ``checks`` adds what finds faults that
only a run can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.ir import Deferred, EpilogueOp, Input, Node, Operand, Tensor, Value
from tflgpu.graph.layout import Shape
from tflgpu.model.model import Subgraph
from tflgpu.model.quantization import Grid
from tflgpu.ops.epilogue_ops import ACTIVATIONS, GROWING
from tflgpu.plugins import load_into

Array = NDArray[np.generic]
Found = TypeVar("Found")

# Functions that wrap around, for types of 8 and 16 bits; and kinds of nodes whose kernels make sums or products.
WRAPPING = frozenset(("to_int8", "to_uint8", "to_int16", "to_uint16"))
SUMMING = frozenset(("cumulative_sum", "reduce", "scatter"))


def judged(found: Found | None) -> Found:
    """Return what ``emit`` reads of an operator, and ``reasons`` has judged.

    Args:
        found: Not None, or the operator would have been refused.
    """
    assert found is not None
    return found


@dataclass(frozen=True)
class Site:
    """One operator of the model as its declaration sees it.

    resized: whether the model's inputs have other shapes than the file gives them.
    called: the subgraphs that its options name, such as the computation that joins two numbers.
    stored: the integers of inputs that are constants, as the file has them.
    intermediate_grids: what rounds between the operator's steps, where the file says so.
    """

    index: int
    code: str
    version: int
    inputs: tuple[Tensor | None, ...]
    output_shapes: tuple[Shape | None, ...]  # as the file declares them; None where it leaves them open
    output_types: tuple[str, ...]  # as the file declares them, in the dequantized view
    input_grids: tuple[Grid | None, ...]  # what rounds an input, None if it is not quantized
    output_grids: tuple[Grid | None, ...]
    options: Mapping[str, Any]
    resized: bool = False
    called: tuple[Subgraph, ...] = ()
    stored: tuple[Array | None, ...] = ()
    intermediate_grids: tuple[Grid | None, ...] = ()

    def input(self, index: int) -> Tensor:
        """Return an input that is known to be present.

        Args:
            index: The input's number.
        """
        return judged(self.inputs[index])

    def optional(self, index: int) -> Tensor | None:
        """Return an input that the file may leave out; None if it does.

        Args:
            index: The input's number.
        """
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> Array | None:
        """Return the value of an input if it is known at compile time; that of an empty list of integers always is.

        Args:
            index: The input's number.
        """
        tensor = self.optional(index)
        if tensor is None:
            return None
        return np.zeros(tensor.shape, tensor.dtype) if tensor.size == 0 and tensor.dtype in INDICES else tensor.data

    def known(self, index: int) -> Array:
        """Return the value of an input, which ``reasons`` has found to be a constant.

        Args:
            index: The input's number.
        """
        return judged(self.constant(index))


class Emitter:
    """Collects the nodes of one operator. Its tensors have fresh ids; the last becomes the operator's output."""

    def __init__(self, ids: Iterator[int], source: int) -> None:
        self.nodes: list[Node] = []
        self.tensors: list[Tensor] = []
        self.assigned: dict[int, Tensor] = {}
        self.kept: set[int] = set()
        self._ids = ids
        self._source = source
        self._reads_nothing = False

    def constant(self, data: Array, name: str = "") -> Tensor:
        """Return a new tensor with known elements.

        Args:
            data: The elements. They are not copied.
            name: In the file; empty for none.
        """
        tensor = Tensor(next(self._ids), name, tuple(data.shape), data.dtype.name, data)
        self.tensors.append(tensor)
        return tensor

    def deferred(self, data: Deferred, shape: Shape) -> Tensor:
        """Return a new constant of whole numbers, whose elements are computed where they are read.

        Args:
            data: Computes the elements.
            shape: The tensor's.
        """
        ones = np.ones((1,) * len(shape), np.float32)
        tensor = Tensor(next(self._ids), "", shape, data=data, scale=ones)
        self.tensors.append(tensor)
        return tensor

    def node(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        shape: Shape,
        attributes: object = None,
        epilogue: tuple[EpilogueOp, ...] = (),
        dtype: str | None = None,
        precise: bool = False,
    ) -> Tensor:
        """Add one node, and return its output.

        Devices compute with 32 bits. What exceeds a type of 8 or 16 wraps around here, not first where it is stored:
        other functions of the same kernel may read it.

        Args:
            kind: The node's.
            inputs: Absent ones (None) are left out.
            shape: The output's.
            attributes: Those of the kind.
            epilogue: Ops on the result.
            dtype: The output's; None for that of the first input.
            precise: Whether the output is stored in float in every precision.
        """
        first = next(t for t in inputs if t is not None)
        wrap = f"to_{dtype or first.dtype}"
        if wrap in WRAPPING and (kind in SUMMING or any(op.function in GROWING for op in epilogue)):
            epilogue = (*epilogue, EpilogueOp(wrap, (Value(len(epilogue)),)))
        output = Tensor(next(self._ids), "", shape, dtype or first.dtype, precise=precise)
        self.tensors.append(output)
        present = tuple(t.id for t in inputs if t is not None)
        self._reads_nothing |= output.size > 0 and any(t is not None and t.size == 0 for t in inputs)
        self.nodes.append(Node(kind, present, output.id, attributes, epilogue, (self._source,)))
        return output

    def complex(self, real: Tensor, imaginary: Tensor) -> Tensor:
        """Return complex numbers of two tensors. Operators that read them read their parts.

        Args:
            real: The real parts.
            imaginary: The imaginary parts, of the same shape.
        """
        pair = Tensor(next(self._ids), "", real.shape, COMPLEX, parts=(real, imaginary))
        self.tensors.append(pair)
        return pair

    @property
    def makes_something_of_nothing(self) -> bool:
        """Whether a node reads a tensor without elements and gives one with elements, which no kernel knows."""
        return self._reads_nothing

    def assign(self, index: int, value: Tensor) -> None:
        """Leave a value in a variable tensor.

        Args:
            index: The number of the operator's input that is the variable.
            value: Of the variable's shape.
        """
        self.assigned[index] = value

    def keep(self, x: Tensor) -> None:
        """Store a tensor in float in every precision, and what its elements are moved from.

        Args:
            x: An output of a node.
        """
        self.kept.add(x.id)

    def activation(self, site: Site, after: int = 0) -> tuple[EpilogueOp, ...]:
        """Return the operator's fused activation as steps on a value.

        Args:
            site: The operator.
            after: The value's number.
        """
        function = ACTIVATIONS[site.options.get("fused_activation_function", 0)]
        return (EpilogueOp(function, (Value(after),)),) if function else ()


Emit = Callable[[Site, Emitter], Tensor | Sequence[Tensor]]

AnyEmit = TypeVar("AnyEmit", bound=Emit)  # it may take more, which rules give


@dataclass(frozen=True)
class Check:
    """A condition on every run. found: true for each element that is at fault. fault: what is wrong with them."""

    found: Tensor
    fault: str


Checks = Callable[[Site, Emitter], Iterable[Check]]


@dataclass(frozen=True)
class Op:
    """The declaration of one TFLite operator.

    inputs: the least and the greatest number of inputs.
    versions: the greatest operator version whose meaning ``emit`` covers.
    integers: positions of inputs that are integers (shapes, axes).
    types: the element types that all other inputs may have.
    empty: whether inputs may be without elements; else such an input is an obstacle.
    by_parts: whether input 0 may be complex, because the operator moves real and imaginary parts alike.
    checks: what a run with ``Numerics(checks=True)`` looks for.
    """

    code: str
    versions: int
    inputs: tuple[int, int]
    integers: tuple[int, ...]
    types: frozenset[str]
    empty: bool
    by_parts: bool
    emit: Emit
    reasons: Callable[[Site], Iterable[str]]
    checks: Checks

    def obstacles(self, site: Site) -> list[str]:
        """Every reason why this operator cannot run on the device; empty if it can."""
        return self.misfits(site) or list(self.reasons(site))

    def misfits(self, site: Site) -> list[str]:
        """Return what is wrong with its version, and with the number and the element types of its inputs."""
        least, greatest = self.inputs
        if not least <= len(site.inputs) <= greatest or any(t is None for t in site.inputs[:least]):
            wanted = str(least) if least == greatest else f"{least} to {greatest}"
            return [f"it has {len(site.inputs)} inputs where {wanted} are expected"]
        found = []
        if site.version > self.versions:
            found.append(f"version {site.version} is newer than the greatest supported one, {self.versions}")
        if site.options.get("fused_activation_function", 0) not in ACTIVATIONS:
            found.append("its fused activation function is not supported")
        for i, tensor in enumerate(site.inputs):
            if tensor is None:
                continue
            types = INDICES if i in self.integers else self.types
            takes_parts = COMPLEX in types or (self.by_parts and i == 0)
            if tensor.dtype == COMPLEX and takes_parts:
                if tensor.parts is None:
                    found.append(f"input {i} holds complex numbers that the device has not computed")
            elif tensor.dtype not in types:
                expected = (
                    f"; {' or '.join(sorted(types))} was expected"
                    if len(types) <= LISTED
                    else ", which it does not take"
                )
                found.append(f"input {i} has element type {tensor.dtype}{expected}")
            # The shape of a scalar has no elements, and is fine.
            if 0 in tensor.shape and i not in self.integers and not self.empty:
                found.append(f"input {i} of shape {list(tensor.shape)} is empty")
        return found


COMPLEX = "complex64"

# Element types that a refusal of another one lists.
LISTED = 4

REGISTRY: dict[str, Op] = {}

# The results of an operator that gives or takes sizes that only a run can tell; None where ``emit`` knows them. A rule
# takes a SizedOperation of tflgpu.ops.sized, and raises Refused.
SizedRule = Callable[[Any], Tensor | Sequence[Tensor] | None]

SIZED: dict[str, SizedRule] = {}


def find_operator(code: str) -> tuple[Op | None, tuple[str, ...]]:
    """Return the declaration of an operator.

    Args:
        code: The operator's.

    Returns:
        None if there is none; and then what is wrong with packages that might have it.
    """
    if code in REGISTRY:
        return REGISTRY[code], ()
    failures = load_into(REGISTRY)
    op = REGISTRY.get(code)
    return op, () if op else failures


FLOATS = frozenset(("float32",))

INDICES = frozenset(("int16", "int32", "int64", "uint8"))

# The element types that kernels compute with.
INTEGERS = frozenset(("int8", "int16", "int32", "int64", "uint8"))

NUMBERS = FLOATS | INTEGERS

# The element types that kernels move.
ANY = NUMBERS | {"bool", "float16", "float64", "uint16", "uint32"}


# The greatest number of inputs of operators that take any number.
MANY = 2**31 - 1


def nothing(_: Site) -> Iterable[str]:
    """Return the ``reasons`` of an operator that always runs."""
    return ()


def unchecked(_: Site, __: Emitter) -> Iterable[Check]:
    """Return the ``checks`` of an operator that takes all numbers."""
    return ()


def declare(
    code: str,
    *,
    versions: int,
    inputs: int | tuple[int, int],
    integers: tuple[int, ...] = (),
    types: frozenset[str] = FLOATS,
    empty: bool = True,
    by_parts: bool = False,
    reasons: Callable[[Site], Iterable[str]] = nothing,
    checks: Checks = unchecked,
    sized: SizedRule | None = None,
) -> Callable[[AnyEmit], AnyEmit]:
    """Register the decorated function as the ``emit`` of an operator; it returns the output, or all of them.

    Args:
        code: A name of BuiltinOperator, or the name of a custom operator in the file.
        versions: The greatest operator version whose meaning the function covers.
        inputs: The least and the greatest number of inputs; one number for both.
        integers: Positions of inputs that are integers (shapes, axes).
        types: The element types that all other inputs may have.
        empty: Whether inputs may be without elements; else such an input is an obstacle.
        by_parts: Whether input 0 may be complex, because the operator moves real and imaginary parts alike.
        reasons: Yields the obstacles of an operator.
        checks: Makes what a run with ``Numerics(checks=True)`` looks for.
        sized: A rule for sizes that only a run can tell.

    Raises:
        ValueError: The operator is declared already.
    """
    arity = (inputs, inputs) if isinstance(inputs, int) else inputs

    def register(emit: AnyEmit) -> AnyEmit:
        if code in REGISTRY:
            raise ValueError(f"operator {code} is declared already")
        emits = _in_parts(emit) if by_parts else emit
        REGISTRY[code] = Op(code, versions, arity, integers, types, empty, by_parts, emits, reasons, checks)
        if sized is not None:
            SIZED[code] = sized
        return emit

    return register


def sized(code: str) -> Callable[[SizedRule], SizedRule]:
    """Register the decorated function as the rule of an operator that always gives sizes that only a run can tell.

    Args:
        code: The operator's.
    """

    def register(rule: SizedRule) -> SizedRule:
        SIZED[code] = rule
        return rule

    return register


def _in_parts(emit: Emit) -> Emit:
    """``emit``, and for complex numbers what it emits for each of their parts."""

    @wraps(emit)
    def emit_parts(site: Site, emitter: Emitter) -> Tensor | Sequence[Tensor]:
        parts = site.input(0).parts
        if parts is None:
            return emit(site, emitter)
        moved = [emit(replace(site, inputs=(part, *site.inputs[1:])), emitter) for part in parts]
        real, imaginary = moved
        assert isinstance(real, Tensor) and isinstance(imaginary, Tensor), "operators of one result move parts"
        return emitter.complex(real, imaginary)

    return emit_parts


def operands_of(primary: Tensor, others: Sequence[Tensor]) -> tuple[list[Tensor], list[Operand]]:
    """Return inputs of a map node and how its step reads each: the primary, wherever it occurs, is value 0.

    Args:
        primary: The node's first input.
        others: The step's operands, which may have the primary among them.
    """
    inputs, operands = [primary], list[Operand]()
    for tensor in others:
        if tensor.id == primary.id:
            operands.append(Value(0))
        else:
            inputs.append(tensor)
            operands.append(Input(len(inputs) - 1))
    return inputs, operands


def static(site: Site, index: int, what: str) -> Iterator[str]:
    """Yield the obstacle that an input should have been a constant.

    Args:
        site: The operator.
        index: The input's number.
        what: The input's name, for the message.
    """
    if site.constant(index) is None:
        yield f"its {what} (input {index}) is computed at run time; only a constant is supported"


def numbers(site: Site, index: int) -> list[int]:
    """Return the value of an input, a constant of integers, flat.

    Args:
        site: The operator.
        index: The input's number.
    """
    return [int(v) for v in site.known(index).reshape(-1)]


def normal_axis(axis: int, rank: int) -> int | None:
    """Return a possibly negative axis as a non-negative one, None if it is out of range.

    Args:
        axis: Counted from the end if it is negative.
        rank: The number of axes.
    """
    return axis % rank if -rank <= axis < rank else None


def axis_option(site: Site, new: int = 0) -> int | None:
    """Return the option ``axis`` as :func:`normal_axis` has it.

    Args:
        site: The operator; input 0 has the axes.
        new: Axes that the result has more.
    """
    return normal_axis(site.options.get("axis", 0), len(site.input(0).shape) + new)
