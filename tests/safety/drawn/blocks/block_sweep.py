"""Run networks of blocks by the thousand: ``python -m tests.safety.drawn.blocks.block_sweep --cases 2000``.

Each seed is a network, which is compiled once for each precision. What is not right is printed with its seed;
``--seed N --cases 1`` draws it again. Needs nothing but tflgpu and what it depends on, so that it runs where a GPU is:
``--device NVIDIA --gpu``. ``--emulate`` runs the kernels for tensor cores on Intel's CPU runtime, and ``--plan``
makes plans and their source only. ``--unoptimized`` keeps a CPU's compiler from optimizing, which takes half the time.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Lock

from tests.safety.drawn.blocks.block_judge import difference, is_ill_conditioned
from tests.safety.drawn.blocks.block_networks import network
from tests.safety.drawn.blocks.writer import Array, Drawn
from tests.safety.drawn.jobs import EXECUTORS, ON_GPUS, Job, Setting, cause_of, run
from tests.safety.sandbox import Sandbox, share_out
from tests.support.planning import plan_of
from tests.support.unoptimized import compile_without_optimization
from tflgpu.codegen.render import render
from tflgpu.options import ExecutorChoice, KernelFamily, Options, Precision
from tflgpu.target import Target

SECONDS = 900.0  # for one network in one precision, on a machine that does other work
STORAGES: Mapping[str, str] = {"fp32": "float", "fp16": "half"}


@dataclass(frozen=True)
class Way:
    """How a network is run: in ``setting`` on ``device``; or only as ``kind`` says."""

    setting: Setting
    device: str
    kind: str = "run"


@dataclass(frozen=True)
class Task:
    drawn: Drawn
    way: Way


def outputs_of(task: Task) -> list[list[Array]]:
    """The outputs of each run; none where there is only a plan."""
    drawn, way = task.drawn, task.way
    if way.kind == "run":
        return run(Job(drawn.model, drawn.inputs, way.setting, way.device))
    if way.kind == "emulate":
        return [_emulated(drawn, way.setting.precision)]
    for target in _targets(STORAGES[way.setting.precision]):
        render(plan_of(drawn.model, target, Options(fallback="forbid")))
    return []


def _emulated(drawn: Drawn, precision: Precision) -> list[Array]:
    from tests.support import emulated_matrix_units as emulated  # needs pytest

    target = replace(emulated.TARGET, storage=STORAGES[precision])
    return emulated.run(plan_of(drawn.model, target, Options(fallback="forbid")), drawn.inputs)


def _targets(storage: str) -> Iterator[Target]:
    from tests.support.targets import CPU, GPU, H200, H200_LAUNCHES

    for target in (CPU, GPU, H200, H200_LAUNCHES):
        yield replace(target, storage=storage)


def ways(drawn_by: Random, options: argparse.Namespace) -> list[Way]:
    executors: Sequence[tuple[KernelFamily, ExecutorChoice]] = ON_GPUS if options.gpu else EXECUTORS
    kernels, executor = executors[drawn_by.randrange(len(executors))]
    kind = "plan" if options.plan else "emulate" if options.emulate else "run"
    return [Way(Setting(kernels, executor, p, fallback="forbid"), options.device, kind) for p in options.precision]


def judged(sandbox: Sandbox[Task], task: Task) -> tuple[str, str]:
    """The outcome of a network, and its cause."""
    precision = task.way.setting.precision
    fate = sandbox.run(task)
    if fate.kind != "answer":
        return "fault", cause_of(fate)
    found = (difference(task.drawn, outputs, precision) for outputs in fate.value)
    wrong = next((text for text in found if text is not None), None)
    if wrong is not None:
        return "wrong", wrong
    return ("right, ill-conditioned" if is_ill_conditioned(task.drawn, precision) else "right"), ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 if no answer is wrong and nothing fails, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.safety.drawn.blocks.block_sweep", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="networks (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first network; the next has the next seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--device", default="Intel", help="as Options(device=) takes it (default: %(default)s)")
    parser.add_argument("--precision", nargs="+", default=["fp32", "fp16"], choices=["fp32", "fp16"])
    parser.add_argument("--gpu", action="store_true", help="the device is a GPU: take the executors that it has")
    parser.add_argument("--emulate", action="store_true", help="kernels for tensor cores on Intel's CPU runtime")
    parser.add_argument("--plan", action="store_true", help="plans for several devices, without running them")
    parser.add_argument("--unoptimized", action="store_true", help="compile in less time, to slower code")
    parser.add_argument("--json", type=Path, help="a line for each network that is not right")
    options = parser.parse_args(arguments)
    lock, counts = Lock(), Counter[str]()

    def outcomes(sandbox: Sandbox[Task], seed: int) -> list[str]:
        with lock:
            drawn, chosen = network(Random(seed)), ways(Random(seed), options)
        found = []
        for way in chosen:
            outcome, cause = judged(sandbox, Task(drawn, way))
            found.append(f"{way.setting.precision} {outcome}")
            if outcome in ("wrong", "fault"):
                line = {"seed": seed, "outcome": outcome, "cause": cause, "way": str(way), "network": str(drawn)}
                with lock:
                    print(*line.values(), sep="\n  ", flush=True)
                    if options.json:
                        with options.json.open("a") as file:
                            file.write(json.dumps(line) + "\n")
        return found

    seeds = range(options.seed, options.seed + options.cases)
    started: Callable[[], Sandbox[Task]] = partial(
        Sandbox,
        outputs_of,
        seconds=SECONDS,
        memory=None,
        prepare=compile_without_optimization if options.unoptimized else None,
    )
    for number, found in enumerate(share_out(seeds, started, options.jobs, outcomes), 1):
        counts.update(found)
        if number % 20 == 0:
            print(number, dict(counts), flush=True)
    print(f"{options.cases} networks:", dict(sorted(counts.items())))
    return int(any("wrong" in outcome or "fault" in outcome for outcome in counts))


if __name__ == "__main__":
    raise SystemExit(main())
