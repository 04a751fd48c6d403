"""Times of operators of drawn shapes, over those of the roofline: ``python -m benchmarks.sweep [OPERATOR...]``.

The roofline's time is that of the bytes (inputs, weights and the result once) or of the multiply-adds, whichever takes
longer. To it comes a launch, and for each further step of an LSTM a barrier of all compute units. Each operator runs by
launches, many times in turn, and reads what another kernel has stored: its data are where a network's would be, in
caches if these are large enough.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import tflgpu
from benchmarks.publish import publish
from benchmarks.sweep.bundles import Bundle, bundles, compile_bundle
from benchmarks.sweep.drawn_shapes import OPERATORS, draw
from benchmarks.sweep.roofline import Roofline, measure_roofline
from tflgpu.runtime.opencl.devices import choose

PRECISIONS = ("fp32", "fp16")
LIMIT = 8  # times the roofline's time
WORST = 10  # that the results list of each operator
SAMPLE = 8  # of so many models one is compared with LiteRT
TOLERANCE = {"fp32": 1e-3, "fp16": 5e-2}


def rows(
    operator: str, found: Sequence[Bundle], precision: str, options: tflgpu.Options, roofline: Roofline
) -> Iterator[dict[str, object]]:
    """A summary of an operator's shapes, the worst among them in words."""
    measured: list[tuple[float, float, float, int, str]] = []
    errors: list[float] = []
    for number, bundle in enumerate(found):
        model = bundle.model()
        with tflgpu.compile(model, options) as compiled:
            if number % SAMPLE == SAMPLE - 1:  # now, while an LSTM has its first state
                errors += bundle.errors(compiled, model)
            for drawn, (seconds, kernels) in zip(bundle.operators, bundle.seconds(compiled), strict=True):
                attainable = roofline.seconds(drawn, precision)
                measured.append((seconds / attainable, seconds, attainable, kernels, drawn.title))
    measured.sort(reverse=True)
    error = max(errors, default=0.0)
    if error > TOLERANCE[precision]:
        raise SystemExit(f"{operator} in {precision} differs from LiteRT's CPU by {error:.2g} of its range")
    yield {
        "operator": operator,
        "precision": precision,
        "shapes": len(measured),
        "checked": len(errors),
        "error": float(f"{error:.2g}"),
        f"above_{LIMIT}x": sum(ratio > LIMIT for ratio, *_ in measured),
        "median_ratio": round(median(ratio for ratio, *_ in measured), 2),
        "worst": [
            {"ratio": round(ratio, 1), "us": round(1e6 * seconds, 1), "roofline_us": round(1e6 * least, 1)}
            | {"kernels": kernels, "shape": title}
            for ratio, seconds, least, kernels, title in measured[:WORST]
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", choices=[[], *OPERATORS], metavar="OPERATOR")
    parser.add_argument("--shapes", type=int, default=500, help="of each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kernels", default="auto", help="the family of kernels")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile")
    parser.add_argument("--compile-only", action="store_true", help="into the cache, for a later call that measures")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    found = {name: bundles(draw(name, arguments.shapes, arguments.seed)) for name in arguments.operators or OPERATORS}
    options = {
        precision: tflgpu.Options(
            device=device.index, precision=precision, executor="launch", kernels=arguments.kernels, fallback="forbid"
        )
        for precision in PRECISIONS
    }
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        work = [
            pool.submit(compile_bundle, bundle, options[precision])
            for each, precision in product(found.values(), arguments.precisions)
            for bundle in each
        ]
        for done in as_completed(work):
            done.result()
    if arguments.compile_only:
        return
    roofline = measure_roofline(device)
    facts = {
        "bytes_per_second": round(roofline.ceilings.bytes_per_second),
        "flops": {precision: round(rate) for precision, rate in roofline.ceilings.flops.items()},
        "launch_us": round(1e6 * roofline.ceilings.launch_seconds, 2),
        "barrier_us": round(1e6 * roofline.barrier, 2),
    }
    publish(
        (
            row
            for (name, each), precision in product(found.items(), arguments.precisions)
            for row in rows(name, each, precision, options[precision], roofline)
        ),
        device,
        arguments.out,
        **facts,
    )


if __name__ == "__main__":
    main()
