"""How far the outputs of two engines are apart, when that is too far, and the first kernel that is wrong.

Errors are not monotone along a graph (a softmax hides what a logit had), so nothing is halved: the results of all
kernels of one run are compared, in order of execution, with those of LiteRT's plain kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape

from tflgpu.cli.console import Listing, console
from tflgpu.evaluate.accuracy import Deviation, real
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Options
from tflgpu.report.report import counted

if TYPE_CHECKING:
    from tflgpu.measure.trace import Result
    from tflgpu.model.model import FileTensor
    from tflgpu.report.half_precision import FloatStorage


# The largest error, as a part of an output's range, that a precision explains; and the one that roundings to integers
# in other places explain, where the model is quantized.
TOLERANCES = {"fp32": 1e-3, "mixed": 5e-2, "fp16": 5e-2, "fp16_fast": 5e-2}
QUANTIZED_TOLERANCE = 5e-2

Tolerance = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Largest error that passes, as a part of the output's range.",
        show_default="0.001 for float models in fp32, else 0.05",
    ),
]


@dataclass(frozen=True)
class OutputDiff:
    """One output over all runs, each number as :class:`Deviation` defines it. unit: ``"value"`` or ``"quanta"``.

    passed: whether the relative error is within the tolerance. nearer: where it is not, but tflgpu's answer is nearer
    the exact one than LiteRT's in a way that is known, what LiteRT does; else empty.
    """

    name: str
    dtype: str
    unit: str
    avg_error: float
    std_dev: float
    max_error: float
    range: float
    relative_error: float
    passed: bool
    nearer: str = ""

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong with tflgpu's answer."""
        return self.passed or bool(self.nearer)

    @classmethod
    def of(cls, info: TensorInfo, found: Deviation, tolerance: float, nearer: str = "") -> OutputDiff:
        """Return the difference of an output, from the errors that were collected."""
        unit = "value" if found.quantum is None else "quanta"
        errors = found.avg_error, found.std_dev, found.max_error
        passed = found.relative <= tolerance
        return cls(info.name, info.dtype, unit, *errors, found.extent, found.relative, passed, "" if passed else nearer)


def default_tolerance(precision: str, kind: str) -> float:
    """kind: of the model, in the words of ``Report.model``: integer int8, float32 with int8 weights, ..."""
    return max(TOLERANCES[precision], QUANTIZED_TOLERANCE if "int" in kind else 0.0)


def print_errors(outputs: Sequence[OutputDiff]) -> None:
    """Print the lines of the delegate's tool, then what else one wants to know of each output."""
    numbers = ("#", "max error", "range", "of range")
    listing = Listing("#", "output", *numbers[1:], "unit", "", right=numbers)
    for i, o in enumerate(outputs):
        console.print(f"OutputDiff\\[{i}]: avg_error={o.avg_error:.6g}, std_dev={o.std_dev:.6g}")
        errors = (f"{o.max_error:.3g}", f"{o.range:.3g}", f"{o.relative_error:.2g}")
        listing.add_row(str(i), escape(o.name), *errors, o.unit, _words(o))
    console.print("", listing, sep="\n")


def _words(output: OutputDiff) -> str:
    return "[green]same[/]" if output.passed else "[green]nearer[/]" if output.nearer else "[red]differs[/]"


def print_verdict(outputs: Sequence[OutputDiff], tolerance: float) -> None:
    """Print whether all outputs are within the tolerance."""
    differing = [o for o in outputs if not o.is_right]
    for each in outputs:
        if each.nearer:
            console.print(f"\n{escape(each.name)} is nearer the exact answer than LiteRT's: {escape(each.nearer)}")
    if not differing:
        others = ", or nearer the exact answer" if any(o.nearer for o in outputs) else ""
        console.print(f"\n[bold green]PASS[/] every output is within {tolerance:g} of its range{others}")
        return
    worst = max(differing, key=lambda o: o.relative_error)
    console.print(
        f"\n[bold red]FAIL[/] {len(differing)} of {counted(len(outputs), 'output')} differ by more than {tolerance:g} "
        f"of their range; {escape(worst.name)} by {worst.relative_error:.2g}"
    )


# Rows of the table of the largest errors.
WORST = 8


@dataclass(frozen=True)
class TensorError:
    """The result of one kernel against LiteRT's.

    kernel: its number in order of execution. operators: what it computes. max_error, range: in real numbers.
    relative_error: of the range; 0 for a quantized tensor within two quanta.
    """

    kernel: int
    tensor: str
    operators: tuple[str, ...]
    max_error: float
    range: float
    relative_error: float


@dataclass(frozen=True)
class Bisection:
    """kernels: how many there are; those whose result is no tensor of the file are not compared."""

    tolerance: float
    kernels: int
    tensors: tuple[TensorError, ...]

    @property
    def first(self) -> TensorError | None:
        """The first tensor that is off by more than the tolerance; None if there is none."""
        return next((t for t in self.tensors if t.relative_error > self.tolerance), None)

    @property
    def worst(self) -> list[TensorError]:
        """The largest errors, in order of execution."""
        largest = sorted(self.tensors, key=lambda t: t.relative_error, reverse=True)[:WORST]
        return sorted(largest, key=lambda t: t.kernel)


def bisect_model(
    model: bytes, inputs: Sequence[NDArray[Any]], options: Options, tolerance: float, floats: FloatStorage | None
) -> Bisection:
    """Compare every kernel's result on ``inputs``.

    tolerance: the largest error that passes, as a part of a tensor's range. floats: what stays in float in the model as
    it was compiled with these options; None where all does.
    """
    # Verbs with a warm start must not import the compiler, and what that imports.
    from tflgpu.frontend.partition import BOUND_TYPES
    from tflgpu.measure.trace import trace
    from tflgpu.model.reader import read_model

    reference = LiteRT(model, None, keep_tensors=True)
    reference.run(inputs)
    if floats is None:
        options = replace(options, precision="fp32", numerics=replace(options.numerics, tolerance=None))
    results = trace(model, inputs, options, floats=floats)
    subgraph = read_model(model).subgraphs[0]
    written = [subgraph.tensors[t] for o in subgraph.operators for t in o.outputs]
    names = Counter(t.name for t in written)
    # LiteRT crashes when it is asked for the handle of a variable.
    known = {t.name: t for t in written if t.name and names[t.name] == 1 and t.dtype not in BOUND_TYPES}
    codes = [o.code for o in subgraph.operators]
    errors: list[TensorError] = []
    for number, result in enumerate(results):
        tensor = known.get(result.tensor)
        expected = None if tensor is None else reference.tensor(tensor.index)
        if tensor is not None and expected is not None and expected.size == result.value.size:
            errors.append(_error(number, result, tensor, expected, codes))
    return Bisection(tolerance, len(results), tuple(errors))


def _error(
    number: int, result: Result, tensor: FileTensor, expected: NDArray[Any], codes: Sequence[str]
) -> TensorError:
    quantization = tensor.quantization if np.dtype(expected.dtype).kind in "iu" else None
    deviation = Deviation(quantization.scale[0] if quantization else None)
    got = real(result.value.reshape(expected.shape), quantization)
    deviation.add(real(expected, quantization), got)
    quantum = deviation.quantum or 1.0
    operators = tuple(f"{i} {codes[i]}" for i in dict.fromkeys(result.operators))
    return TensorError(
        number,
        result.tensor,
        operators,
        deviation.max_error * quantum,
        deviation.extent * quantum,
        deviation.relative,
    )


def bisection_as_dict(found: Bisection) -> dict[str, Any]:
    """Return what was found, as JSON has it."""
    return {
        "kernels": found.kernels,
        "first": asdict(found.first) if found.first else None,
        "tensors": [asdict(t) for t in found.tensors],
    }


def print_bisection(found: Bisection) -> None:
    """Print what was found, with the first tensor that is off."""
    first = found.first
    if first is None:
        console.print(f"\n[green]no tensor is off by more than {found.tolerance:g}[/] of its range", end="")
    else:
        console.print(
            f"\nfirst off by more than {found.tolerance:g} of its range: [bold red]{escape(first.tensor)}[/], kernel "
            f"{first.kernel} ({', '.join(first.operators)}), off by {first.relative_error:.2g} of its range",
            end="",
        )
    console.print(f"; {len(found.tensors)} of {found.kernels} kernels compute a tensor of the file")
    listing = Listing(
        "kernel",
        "tensor",
        "operators",
        "max error",
        "range",
        "of range",
        right=("kernel", "max error", "range", "of range"),
        title="largest errors, in order of execution",
    )
    for t in found.worst:
        numbers = (f"{t.max_error:.3g}", f"{t.range:.3g}", f"{t.relative_error:.2g}")
        style = "red" if t.relative_error > found.tolerance else ""
        listing.add_row(str(t.kernel), escape(t.tensor), escape(", ".join(t.operators)), *numbers, style=style)
    console.print("", listing, sep="\n")
