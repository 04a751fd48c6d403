"""Times of operators against LiteRT's with one thread, at two sizes: a cost that grows faster shows in the ratio.

``python -m tests.plan.costs.measure [--family cpu|gpu] [--device NAME] [OPERATOR ...]``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

from ai_edge_litert.interpreter import Interpreter

import tflgpu
from tests.plan.costs.sized_models import MODELS, sized

SIZES = 6_400, 102_400
RUNS, SECONDS = 15, 0.5


def seconds(call: Callable[[], object]) -> float:
    """The median of some runs behind the first one, fewer of what takes long."""
    begun, taken = perf_counter(), list[float]()
    while len(taken) < 2 or (len(taken) < RUNS and perf_counter() - begun < SECONDS):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return median(taken[1:])


def measure(name: str, size: int, options: tflgpu.Options) -> tuple[float, float]:
    """Seconds of tflgpu and of LiteRT."""
    model = sized(size, name)
    data = model.model
    compiled = tflgpu.compile(data, options)
    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), model.inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    return seconds(lambda: compiled.run(model.inputs)), seconds(interpreter.invoke)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--family", choices=("cpu", "gpu"))
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    execution = tflgpu.Execution(kernels="gpu", executor="launch") if arguments.family == "gpu" else tflgpu.Execution()
    options = tflgpu.Options(cache="off", precision="fp32", device=arguments.device, execution=execution)
    print(f"{'':32}" + "".join(f"{size:>12,}: ms, LiteRT, ratio" for size in SIZES))
    for name in arguments.names:
        line = f"{name:32}"
        for size in SIZES:
            ours, theirs = measure(name, size, options)
            line += f"{1e3 * ours:17.3f} {1e3 * theirs:8.3f} {ours / theirs:8.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
