"""Times of operators of drawn shapes, over those of the roofline: ``python -m benchmarks.sweep [OPERATOR...]``.

The roofline's time is that of the bytes (inputs, weights and the result once) or of the multiply-adds, whichever takes
longer. To it comes a launch, and for each further step of an LSTM a barrier of all compute units. Each operator runs by
launches, those of several steps in a persistent kernel, many times in turn, and reads what another kernel has stored:
its data are where a network's would be, in caches if these are large enough. Every result is compared with that of
LiteRT's CPU.

Many processes compile and compute LiteRT's results; one at a time has a device and measures. What is above the limit
then is measured once more at the end, when nothing compiles: an LSTM took twice its time beside a driver at work.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

import tflgpu
from benchmarks.publish import publish
from benchmarks.sweep.bundles import Bundle, bundles
from benchmarks.sweep.drawn_shapes import OPERATORS, draw
from benchmarks.sweep.roofline import Roofline, measure_roofline
from benchmarks.sweep.workers import Measured, measure_bundle, pool
from tflgpu.measure.device_model import planned_target
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session

PRECISIONS = ("fp32", "fp16")
LIMIT = 8  # times the roofline's time
WORST = 10  # that the results list of each operator
TOLERANCE = {"fp32": 1e-3, "fp16": 5e-2}


def summary(operator: str, precision: str, found: Sequence[Measured], roofline: Roofline) -> dict[str, object]:
    """A summary of an operator's shapes, the worst among them in words."""
    attainable = [roofline.seconds(each.drawn, precision) for each in found]
    measured = sorted(
        ((each.seconds / least, each, least) for each, least in zip(found, attainable, strict=True)),
        key=lambda entry: -entry[0],
    )
    return {
        "operator": operator,
        "precision": precision,
        "shapes": len(found),
        "error": float(f"{max(each.error for each in found):.2g}"),
        f"above_{LIMIT}x": sum(ratio > LIMIT for ratio, *_ in measured),
        "median_ratio": round(median(ratio for ratio, *_ in measured), 2),
        "worst": [
            {"ratio": round(ratio, 1), "us": round(1e6 * each.seconds, 1), "roofline_us": round(1e6 * least, 1)}
            | {"kernels": each.kernels, "shape": each.drawn.title}
            for ratio, each, least in measured[:WORST]
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", choices=[[], *OPERATORS], metavar="OPERATOR")
    parser.add_argument("--shapes", type=int, default=500, help="of each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", nargs="+", default=["auto"], help="of one model, which share the work")
    parser.add_argument("--kernels", default="auto", help="the family of kernels")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="on all devices together")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    devices = [choose(request) for request in arguments.devices]
    # Now, while the device is idle: all plans are to be made by the same costs.
    planned_target(devices[0], tflgpu.Options(), partial(open_session, devices[0]))
    found = {name: bundles(draw(name, arguments.shapes, arguments.seed)) for name in arguments.operators or OPERATORS}
    roofline = measure_roofline(devices[0])
    with pool(arguments.processes, [device.index for device in devices]) as processes:
        measuring = {
            (name, precision): [
                processes.submit(measure_bundle, bundle, precision, arguments.kernels) for bundle in found[name]
            ]
            for name, precision in product(found, arguments.precisions)
        }
        found_of = {key: [each for part in parts for each in part.result()] for key, parts in measuring.items()}
        for (_, precision), measured in found_of.items():
            for place, each in enumerate(measured):
                if each.seconds > LIMIT * roofline.seconds(each.drawn, precision):
                    again = processes.submit(measure_bundle, Bundle((each.drawn,)), precision, arguments.kernels)
                    (measured[place],) = again.result()
    rows = (summary(*key, measured, roofline) for key, measured in found_of.items())
    publish(rows, devices[0], arguments.out, roofline=roofline.facts)
    wrong = [
        each.drawn.title
        for (_, precision), measured in found_of.items()
        for each in measured
        if not each.error <= TOLERANCE[precision]
    ]
    if wrong:
        raise SystemExit(f"these results differ from LiteRT's CPU: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
