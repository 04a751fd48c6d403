"""How far the outputs of two engines are apart, and whether that is too far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.markup import escape

from tflgpu.cli.console import console
from tflgpu.cli.terminal.listing import Listing
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.report.report import counted

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
