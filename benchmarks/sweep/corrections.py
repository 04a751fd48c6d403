"""How wrong the cost model is about kernels that compete: ``python -m benchmarks.sweep.corrections [--write]``.

For each row of ``tflgpu/target/corrections.json``, operators of drawn shapes are planned twice, so that the kernel is
always chosen and never. Both are measured, many runs in turn. A factor decides between the two wherever it is applied
to a prediction; what it loses is the time of the ways that it chooses over that of the faster ones. The row's factor is
the one that loses least, and of several the one that is nearest to the table's. The median of measured / predicted is
published as well, but loses more: many of its shapes take the same time either way. ``--write`` puts the factors into
the table, with device and date. Nothing else may use the device.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import islice, pairwise
from math import exp, fsum, log, sqrt
from pathlib import Path
from statistics import median

import numpy as np

import tflgpu
from benchmarks.publish import publish
from benchmarks.sweep.bundles import Bundle
from benchmarks.sweep.drawn_shapes import OPERATORS, Drawn
from tflgpu.options import ExecutorChoice, Precision
from tflgpu.runtime.opencl.devices import Device, choose
from tflgpu.target.corrections import ALWAYS, NEVER, TABLE, Correction, corrections, trial

TRIES = 40  # drawn shapes for each that is wanted: of most, only one way is possible

# Operators and precisions in which a kernel competes.
COMPETES: Mapping[str, tuple[tuple[str, ...], tuple[Precision, ...]]] = {
    "mma/gemm of floats": (("CONV_2D",), ("fp32",)),
    "portable/matrix_product of an adjoint right side": (("BATCH_MATMUL",), ("fp32", "fp16")),
    "width blocking": (("CONV_2D",), ("fp32", "fp16")),
    "kn2row": (("CONV_2D", "TRANSPOSE_CONV"), ("fp32", "fp16")),
    "a sum in one kernel": (("CONV_2D", "FULLY_CONNECTED"), ("fp32", "fp16")),
}


@dataclass(frozen=True)
class Compared:
    """An operator in both ways: seconds, and predicted cycles."""

    drawn: Drawn
    precision: Precision
    seconds: tuple[float, float]
    cycles: tuple[float, float]

    @property
    def factor(self) -> float:
        return self.seconds[0] / self.seconds[1] / self.predicted

    @property
    def predicted(self) -> float:
        return self.cycles[0] / self.cycles[1]

    def lost(self, factor: float) -> float:
        """The time of the way that is chosen by a factor, over that of the faster one."""
        return self.seconds[0 if factor * self.predicted < 1 else 1] / min(self.seconds)


def compared(kernel: str, device: Device, shapes: int, seed: int) -> Iterator[Compared]:
    """Operators of drawn shapes in which the kernel competes."""
    operators, precisions = COMPETES[kernel]
    random = np.random.default_rng([seed, sorted(COMPETES).index(kernel)])
    for _ in range(TRIES * shapes):
        drawn = OPERATORS[str(random.choice(operators))](random)
        if drawn.fits:
            found = _in_both_ways(kernel, drawn, precisions[random.integers(len(precisions))], device)
            if found is not None:
                yield found


def _in_both_ways(kernel: str, drawn: Drawn, precision: Precision, device: Device) -> Compared | None:
    """None where the plan does not depend on the factor."""
    bundle = Bundle((drawn,))
    executor: ExecutorChoice = "persistent" if bundle.has_steps else "launch"
    options = tflgpu.Options(
        device=device.index,
        precision=precision,
        execution=tflgpu.Execution(executor=executor),
        fallback="forbid",
        cache="off",
    )
    model, inputs = bundle.model(), bundle.inputs()
    with trial({kernel: ALWAYS}) as chosen:
        first = tflgpu.compile(model, options)
    predictions = [each for each in chosen.predictions if each.kernel == kernel]
    with first:
        if not predictions:
            return None
        with trial({kernel: NEVER}):
            second = tflgpu.compile(model, options)
        with second:
            if first.source == second.source:
                return None
            seconds = []
            for compiled in (first, second):
                compiled.run(inputs)
                ((measured, _),) = bundle.seconds(compiled)
                seconds.append(measured)
    cycles = median(each.cycles for each in predictions), median(each.beside for each in predictions)
    return Compared(drawn, precision, (seconds[0], seconds[1]), cycles)


def best_factor(found: Sequence[Compared], known: float) -> float:
    """The factor that loses least; of several, the one that is nearest to the ``known`` one."""
    turning = sorted(1 / each.predicted for each in found)
    between = [sqrt(low * high) for low, high in pairwise(turning)]
    candidates = [known, turning[0] / 2, *between, 2 * turning[-1]]
    return min(candidates, key=lambda factor: (round(lost(found, factor), 3), abs(log(factor / known))))


def lost(found: Sequence[Compared], factor: float) -> float:
    """The time of the ways that a factor chooses over that of the faster ones, in the geometric mean."""
    return exp(fsum(log(each.lost(factor)) for each in found) / len(found))


def corrected_row(row: Correction, found: Sequence[Compared], device: Device) -> tuple[Correction, dict[str, object]]:
    """The row with the factor that was measured, and what to publish of it."""
    factor = float(f"{best_factor(found, row.factor):.2g}")
    facts = {
        "kernel": row.kernel,
        "shapes": len(found),
        "factor": factor,
        "factor_before": row.factor,
        "lost": round(lost(found, factor), 3),
        "lost_before": round(lost(found, row.factor), 3),
        "median_of_measured_by_predicted": float(f"{median(each.factor for each in found):.2g}"),
        "shapes_and_times": [
            {"shape": each.drawn.title, "precision": each.precision, "predicted": float(f"{each.predicted:.3g}")}
            | {"us": [round(1e6 * seconds, 2) for seconds in each.seconds]}
            for each in found
        ],
    }
    said = f"of {len(found)} drawn shapes the chosen ways take {facts['lost']} of the faster ones' time"
    today = datetime.now(UTC).date().isoformat()
    return replace(row, factor=factor, device=device.name, date=today, measured=said), facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", choices=[[], *COMPETES], metavar="KERNEL", help="a row of the table")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shapes", type=int, default=40, help="of each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the factors into the table")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device, table = choose(arguments.device), dict(corrections())

    def rows() -> Iterator[Mapping[str, object]]:
        for kernel in arguments.kernels or COMPETES:
            found = list(islice(compared(kernel, device, arguments.shapes, arguments.seed), arguments.shapes))
            if found:
                table[kernel], facts = corrected_row(table[kernel], found, device)
                yield facts

    publish(rows(), device, arguments.out)
    if arguments.write:
        text = json.dumps([asdict(row) for row in table.values()], indent=1)
        TABLE.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
