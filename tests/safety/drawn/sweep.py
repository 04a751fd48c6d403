"""Judge drawn networks by the thousand: ``python -m tests.safety.drawn.sweep --cases 20000``.

Each seed is a network. What is not right is printed with its seed; ``--seed N --cases 1`` draws it again.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

from tests.safety.drawn.jobs import EXECUTORS, ON_GPUS
from tests.safety.drawn.judge import SECONDS, Judge, Verdict
from tests.safety.drawn.networks import chains_of, integer_network, network
from tests.safety.drawn.states import SECONDS as STATE_SECONDS
from tests.safety.drawn.states import StateJudge, stateful
from tests.safety.sandbox import share_out


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 if no answer is wrong and nothing fails inside, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.safety.drawn.sweep", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="networks (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first network; the next has the next seed")
    parser.add_argument("--jobs", type=int, default=2, help="pairs of processes (default: %(default)s)")
    parser.add_argument("--device", default="Intel", help="as Options(device=) takes it (default: %(default)s)")
    parser.add_argument("--gpu", action="store_true", help="the device is a GPU: take the executors that it has")
    parser.add_argument("--quantized", action="store_true", help="draw quantized networks only")
    parser.add_argument("--states", action="store_true", help="draw models with variables and several signatures")
    parser.add_argument("--integers", type=int, metavar="N", help="draw networks of N chains of integers only")
    parser.add_argument(
        "--unoptimized", action="store_true", help="let a CPU's compiler not optimize: half of the time"
    )
    parser.add_argument(
        "--seconds", type=float, help=f"for a network (default: {SECONDS:g}, with --states {STATE_SECONDS:g})"
    )
    parser.add_argument("--json", type=Path, help="a line for each network that is not right")
    options = parser.parse_args(arguments)
    drawing, counts = Lock(), Counter[str]()
    executors = ON_GPUS if options.gpu else EXECUTORS

    def drawn_from(seed: int) -> Any:
        if options.states:
            return stateful(Random(seed), executors)
        if options.integers:
            return integer_network(Random(seed), options.integers, executors)
        return network(Random(seed), executors, options.quantized)

    def judged(judge: Any, seed: int) -> str:
        with drawing:
            drawn = drawn_from(seed)
        verdict = judge.judge(drawn)
        if verdict.outcome != "right" and not options.states and len(drawn.chains) > 1:
            for chain in chains_of(drawn):
                note(seed, chain, judge.judge(chain))
        return note(seed, drawn, verdict)

    def note(seed: int, drawn: object, verdict: Verdict) -> str:
        if verdict.outcome != "right":
            line = {"seed": seed, "outcome": verdict.outcome, "cause": verdict.cause, "network": str(drawn)}
            if options.json:
                with drawing, options.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            if verdict.outcome in ("wrong", "fault"):
                print(*line.values(), sep="\n  ", flush=True)
        return verdict.outcome

    def make() -> Any:
        if options.states:
            return StateJudge(options.device, options.seconds or STATE_SECONDS, optimized=not options.unoptimized)
        return Judge(options.device, options.seconds or SECONDS, optimized=not options.unoptimized)

    seeds = range(options.seed, options.seed + options.cases)
    for outcome in share_out(seeds, make, options.jobs, judged):
        counts[outcome] += 1
        if counts.total() % (50 if options.states else 1000 // (options.integers or 1)) == 0:
            print(dict(counts), flush=True)
    print(f"{counts.total()} networks:", dict(counts))
    return int(bool(counts["wrong"] + counts["fault"]))


if __name__ == "__main__":
    raise SystemExit(main())
