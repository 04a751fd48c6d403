"""How a row becomes cases: a network is written to a .tflite file and computed in float64 alongside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter
from numpy.typing import NDArray

from tests.ops.reference import ACTIVATIONS, relu6
from tests.ops.tolerance import ARITHMETIC, Tolerance, check
from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer import ModelBuilder

Drawn = TypeVar("Drawn")

ABSENT = -1  # index of an optional input that is not given


@dataclass(frozen=True)
class Case:
    """One model with its inputs and the outputs it must give."""

    model: bytes
    inputs: list[NDArray[Any]]
    expected: list[NDArray[Any]]
    tolerance: Tolerance
    describe: str
    litert_differs: str = ""
    """Why LiteRT's CPU kernels may give something else here; empty if they should not."""
    holds_input: bool = False
    """Whether the model holds the input that was asked for as a constant."""
    bounds: list[NDArray[np.float64]] | None = None
    """How far each element of each output may be off in single precision, in place of the tolerance."""
    choices: frozenset[tuple[int, object, bool]] = frozenset()
    """Numbers of the draws of its network, what each gave, and whether that is numbers."""

    def check(self, outputs: Iterable[NDArray[Any]], precision: str = "fp32") -> None:
        """That the model gave these outputs is right."""
        for got, expected in zip(outputs, self.expected, strict=True):
            check(got, expected, self.tolerance, precision, self.describe)

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        """Print a failing case for hypothesis, without its bytes and arrays."""
        printer.text(self.describe)


@dataclass(frozen=True)
class Tensor:
    """A tensor of the model that is being written, and the value it must have."""

    index: int
    value: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape


def draws_nothing(*_: object) -> NoReturn:
    raise AssertionError("this network is fixed")


class Net:
    """A model under construction.

    ``draw`` takes shapes and attributes from hypothesis, by default none; ``rng`` makes the numbers from one drawn
    seed: drawing every element is slow, and shrinking them tells nothing.
    held: the number of an input that the model holds as a constant, if it has so many.
    computed: whether floats pass an operator before the network gets them. Kernels read an input of the model as it is
    given, but what another kernel computed as the model's precision stores it.
    """

    def __init__(
        self, seed: int, held: int | None = None, computed: bool = False, draw: st.DrawFn = draws_nothing
    ) -> None:
        self._draw = draw
        self._choices: list[tuple[int, object, bool]] = []
        self.rng = np.random.default_rng(seed)
        self.litert_differs = ""
        self._builder = ModelBuilder()
        self._inputs: list[NDArray[Any] | None] = []
        self._held = held
        self._computed = computed
        self._outputs: list[Tensor] = []
        self._magnitude = 0.0
        self._terms = 1
        self._log: list[str] = []

    def draw(self, strategy: st.SearchStrategy[Drawn]) -> Drawn:
        """A value from hypothesis."""
        value = self._draw(strategy)
        self._choices.append((len(self._choices), *_choice(value)))
        return value

    def normal(self, shape: Sequence[int], scale: float = 1.0) -> NDArray[np.float32]:
        return (scale * self.rng.standard_normal(shape)).astype(np.float32)

    def factors(self, shape: Sequence[int]) -> NDArray[np.float32]:
        """Numbers to multiply or divide by: not near 0, which hides faults, nor what takes others past fp16's range."""
        return (self.rng.uniform(0.5, 1.5, shape) * self.rng.choice([-1, 1], shape)).astype(np.float32)

    def input(self, value: NDArray[Any]) -> Tensor:
        """A model input that is fed ``value``; floats are float32."""
        if len(self._inputs) == self._held:
            self._inputs.append(None)
            return self.constant(value)
        if self._computed and value.dtype == np.float32:
            self._inputs.append(-value)
            given = Tensor(self._builder.input(value.shape), -exact(value))
            return self.op("NEG", [given], exact(value))
        self._inputs.append(value)
        return Tensor(self._builder.input(value.shape, value.dtype.name), exact(value))

    def constant(self, value: NDArray[Any]) -> Tensor:
        """A tensor that the model holds; floats are float32."""
        return Tensor(self._builder.constant(value), exact(value))

    def variable(self, shape: Sequence[int]) -> Tensor:
        """A tensor that keeps its value from one run to the next, zeros at first; operators change it in place."""
        return Tensor(self._builder.tensor(shape, is_variable=True), np.zeros(shape))

    def change(self, variable: Tensor, code: str, inputs: Sequence[Tensor], value: NDArray[Any]) -> Tensor:
        """Append an operator that leaves ``value`` in a variable."""
        self._builder.op(code, [x.index for x in inputs], [variable.index])
        return Tensor(variable.index, value)

    def integers(self, values: Any) -> Tensor:
        """An int32 constant: axes, sizes, paddings."""
        return self.constant(np.array(values, np.int32))

    def op(
        self,
        code: str,
        inputs: Sequence[Tensor | None],
        value: NDArray[Any],
        options: Mapping[str, object] | None = None,
        *,
        activation: str | None = None,
        version: int = 1,
        terms: int = 1,
        magnitude: float = 0.0,
        custom_options: bytes = b"",
        dtype: str | None = None,
    ) -> Tensor:
        """Append operator ``code``, whose output is ``value`` before its fused activation, and of its type.

        Args:
            activation: the fused activation; None if the operator has no such option.
            terms: number of terms in each sum of the operator.
            magnitude: size of the largest term that it adds, where terms may cancel each other.
            dtype: element type of the output in the file, by default that of the value, and float32 for floats.
        """
        options = dict(options or {})
        if activation is not None:
            options["fused_activation_function"] = activation
        if activation == "TANH":
            self.litert_differs = "the CPU kernels leave a fused TANH out"
        self._magnitude = max(self._magnitude, magnitude, largest(value) if value.dtype.kind == "f" else 0.0)
        self._terms = max(self._terms, terms)
        self._log.append(f"{code}{[x and x.shape for x in inputs]} {options} -> {value.shape}")
        result = np.asarray(ACTIVATIONS[activation](value) if activation else value)
        output = self._builder.tensor(result.shape, dtype or _dtype(result))
        indices = [ABSENT if x is None else x.index for x in inputs]
        self._builder.op(code, indices, [output], options or None, version=version, custom_options=custom_options)
        return Tensor(output, result)

    def ops(
        self,
        code: str,
        inputs: Sequence[Tensor],
        values: Sequence[NDArray[Any]],
        options: Mapping[str, object] | None = None,
        *,
        custom_options: bytes = b"",
    ) -> list[Tensor]:
        """Append operator ``code``, which has an output for each of ``values`` and no fused activation."""
        self._log.append(f"{code}{[x.shape for x in inputs]} {options} -> {[v.shape for v in values]}")
        self._magnitude = max(self._magnitude, *map(largest, values))
        outputs = [Tensor(self._builder.tensor(v.shape, _dtype(v)), v) for v in values]
        indices = [x.index for x in inputs], [x.index for x in outputs]
        self._builder.op(code, *indices, options, custom_options=custom_options)
        return outputs

    def quantized(
        self, code: str, x: Tensor, value: NDArray[Any], dtype: str, scale: float, zero: int, *, magnitude: float = 0.0
    ) -> Tensor:
        """Append operator ``code`` whose output the file holds as integers that stand for ``value``.

        magnitude: the largest number that it can hold, if results may be off by one of the integers.
        """
        self._magnitude = max(self._magnitude, magnitude)
        self._log.append(f"{code}[{x.shape}] -> {dtype}, scale {scale}, zero point {zero}")
        output = self._builder.tensor(x.shape, dtype, quantization=Quantization([scale], [zero]))
        self._builder.op(code, [x.index], [output])
        return Tensor(output, value)

    def subgraph(self, body: ModelBuilder, outputs: Sequence[int]) -> int:
        """Add a subgraph that operators call. Returns its index for their options."""
        return self._builder.subgraph(body, outputs)

    def output(self, tensor: Tensor) -> None:
        """Make ``tensor`` one more output of the model; they come in the order of the calls."""
        self._outputs.append(tensor)

    def case(self, tolerance: Tolerance = ARITHMETIC) -> Case:
        return Case(
            model=self._builder.finish([tensor.index for tensor in self._outputs]),
            inputs=[value for value in self._inputs if value is not None],
            expected=[tensor.value for tensor in self._outputs],
            tolerance=replace(tolerance, magnitude=self._magnitude, terms=self._terms),
            describe="; ".join(self._log),
            litert_differs=self.litert_differs,
            holds_input=any(value is None for value in self._inputs),
            choices=frozenset(self._choices),
        )


def _choice(value: object) -> tuple[object, bool]:
    """A drawn value, and whether it is numbers, of which matters whether they are below 2, and fill vectors of four."""
    match value:
        case bool() | str() | None:
            return value, False
        case int():
            return value if value < 2 else 2 + value % 4, True
        case tuple() | list():
            each = [_choice(part) for part in value]
            return tuple(part for part, _ in each), all(is_number for _, is_number in each)
    return type(value), True


def _dtype(value: NDArray[Any]) -> str:
    return "float32" if value.dtype.kind == "f" else value.dtype.name


def exact(value: NDArray[Any]) -> NDArray[Any]:
    """``value`` as references compute with it: floats in double."""
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def largest(value: NDArray[Any]) -> float:
    """The largest finite absolute value."""
    return float(np.max(np.abs(value.astype(np.float64)), where=np.isfinite(value), initial=0))


Build = Callable[[Net], Tensor]


@dataclass(frozen=True)
class Row:
    """One row of the table: ``build`` draws a small network around ``op`` and returns its (last) output.

    litert: whether LiteRT has a kernel for the operator.
    """

    name: str
    op: str
    build: Build = field(repr=False)
    tolerance: Tolerance = ARITHMETIC
    litert: bool = True

    def case(self, fused: bool, held: int | None = None, computed: bool = False) -> st.SearchStrategy[Case]:
        """Cases of the operator alone, or with a chain of elementwise operators that can be fused into it.

        held: the number of an input that the model holds as a constant. computed: whether the network's inputs are.
        """
        return _case(self, fused, held, computed)


@st.composite
def _case(draw: st.DrawFn, row: Row, fused: bool, held: int | None, computed: bool) -> Case:
    net = Net(draw(st.integers(0, 2**32 - 1)), held, computed, draw)
    tensor = row.build(net)
    if fused:
        if tensor.value.dtype.kind != "f":
            tensor = _to_float(net, tensor)
        for append in draw(st.lists(st.sampled_from(_CHAIN_OPS), min_size=1, max_size=4)):
            tensor = append(net, tensor)
    net.output(tensor)
    return net.case(ARITHMETIC if fused else row.tolerance)


def _to_float(net: Net, x: Tensor) -> Tensor:
    """The chain computes with floats: other types are converted first."""
    return net.op("CAST", [x], x.value.astype(np.float64))


def _runtime_operand(net: Net, x: Tensor) -> Tensor:
    return net.input(net.normal(x.shape))


def _channel_operand(net: Net, x: Tensor) -> Tensor:
    return net.constant(net.factors(x.shape[-1:]))


def _add(net: Net, x: Tensor) -> Tensor:
    y = _runtime_operand(net, x)
    return net.op("ADD", [x, y], x.value + y.value, activation="NONE", magnitude=largest(x.value))


def _subtract_from_channel(net: Net, x: Tensor) -> Tensor:
    y = _channel_operand(net, x)
    return net.op("SUB", [y, x], y.value - x.value, activation="NONE", magnitude=largest(x.value))


def _multiply_by_channel(net: Net, x: Tensor) -> Tensor:
    y = _channel_operand(net, x)
    return net.op("MUL", [x, y], x.value * y.value, activation="NONE")


def _maximum(net: Net, x: Tensor) -> Tensor:
    y = _runtime_operand(net, x)
    return net.op("MAXIMUM", [x, y], np.maximum(x.value, y.value))


def _relu6(net: Net, x: Tensor) -> Tensor:
    return net.op("RELU6", [x], relu6(x.value))


def _add_up_channels(net: Net, x: Tensor) -> Tensor:
    """Another kernel reads the lanes past the last channel, which have to be zero."""
    if not x.shape or not np.isfinite(x.value).all():
        return x
    terms, axis = x.shape[-1], len(x.shape) - 1
    value = x.value.sum(-1, keepdims=True)
    return net.op(
        "SUM", [x, net.integers([axis])], value, {"keep_dims": True}, terms=terms, magnitude=terms * largest(x.value)
    )


_CHAIN_OPS: tuple[Callable[[Net, Tensor], Tensor], ...] = (
    _multiply_by_channel,
    _add,
    _relu6,
    _subtract_from_channel,
    _maximum,
    _add_up_channels,
)
