"""Integers of options and of constants at their extremes: ``python -m tests.safety.mutants.extremes --help``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from rich.console import Console
from rich.progress import track

from tests.ops.table import ROWS
from tests.safety.mutants.edits import CannotWriteError, Edit, Patch, edited, unpack
from tests.safety.mutants.mutate import Finding, read_findings, summary
from tests.safety.mutants.mutation import Mutant
from tests.safety.mutants.originals import Original, network
from tests.safety.mutants.verdict import Court, Verdict
from tests.safety.sandbox import share_out
from tflgpu.options import Fallback

INTEGERS = (0, 1, -1, 2**15, 2**16, 2**24, 2**30, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63))
MOST_ELEMENTS = 64  # of a constant that can be an axis, a shape, begins or paddings
TYPES = {schema.TensorType.INT32: np.dtype("<i4"), schema.TensorType.INT64: np.dtype("<i8")}
NETWORKS = (0, 5)  # the simplest of each row, and one more
ALONG_WIDTH = {"strideH": "strideW", "dilationHFactor": "dilationWFactor", "filterHeight": "filterWidth"}

Edits = tuple[Edit, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 if there is no fault, else 1."""
    options = _parse(arguments)
    console = Console()
    known = read_findings(options.json) if options.json else {}
    chosen = sample(options.cases, options.row)
    findings = [known[number] for number in range(len(chosen)) if number in known]
    missing = [(number, mutant) for number, mutant in enumerate(chosen) if number not in known]
    with ExitStack() as stack:
        lines = stack.enter_context(options.json.open("a")) if options.json else None
        judged = _judged(missing, options.jobs, options.fallback)
        for finding in track(judged, "models", total=len(missing), console=Console(stderr=True)):
            findings.append(finding)
            if lines:
                lines.write(json.dumps(asdict(finding)) + "\n")
                lines.flush()
            if finding.outcome == "fault":
                console.print(f"{finding.mutant}\n    {finding.cause}", markup=False)
    console.print(summary(findings))
    return int(any(finding.outcome == "fault" for finding in findings))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.safety.mutants.extremes", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="of all that there are (default: %(default)s)")
    parser.add_argument("--row", default="", help="only rows of the op table with this in their name")
    parser.add_argument("--jobs", type=int, default=2, help="pairs of processes (default: %(default)s)")
    parser.add_argument("--fallback", choices=get_args(Fallback), default="auto", help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="a line for each model; what the file has already is not done again")
    return parser.parse_args(arguments)


def sample(count: int, row: str = "") -> list[Mutant]:
    """``count`` networks of the op table with a number changed, always the same ones."""
    originals = (network(r.name, number) for r in ROWS if row in r.name for number in NETWORKS)
    every = [(original, edits) for original in originals for edits in _extremes(unpack(original.data))]
    Random(0).shuffle(every)
    return [*islice(_written(every), count)]


def judge(court: Court, mutant: Mutant, fallback: Fallback = "auto") -> Verdict:
    """Answers that are not LiteRT's for the sound model either are no fault of the number."""
    verdict = court.judge(mutant, fallback)
    if verdict.outcome == "fault" and verdict.cause.startswith("wrong"):
        sound = court.judge(replace(mutant, edits=(), data=mutant.original.data), fallback)
        if sound.cause == verdict.cause:
            return Verdict("unjudged", "not as LiteRT without the number, either", verdict.details)
    return verdict


def _judged(mutants: Sequence[tuple[int, Mutant]], jobs: int, fallback: Fallback) -> Iterator[Finding]:
    def finding(court: Court, numbered: tuple[int, Mutant]) -> Finding:
        number, mutant = numbered
        verdict = judge(court, mutant, fallback)
        return Finding(number, str(mutant), verdict.outcome, verdict.cause, verdict.details)

    return share_out(mutants, Court, jobs, finding)


def _written(changes: Sequence[tuple[Original, Edits]]) -> Iterator[Mutant]:
    """Without the numbers for which the schema has no room."""
    for original, edits in changes:
        try:
            data = edited(original.data, edits)
        except CannotWriteError:
            continue
        if data != original.data:
            yield Mutant(original, edits, data)


def _extremes(model: Any) -> Iterator[Edits]:
    yield from _options(model)
    for tensor in model.subgraphs[0].tensors:
        data, dtype = model.buffers[tensor.buffer].data, TYPES.get(tensor.type)
        if dtype is None or data is None or not 0 < len(data) <= MOST_ELEMENTS * dtype.itemsize:
            continue
        for begin, value in product(range(0, len(data), dtype.itemsize), INTEGERS):
            if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
                yield (Edit(f"buffers[{tensor.buffer}].data", Patch(begin, np.array(value, dtype).tobytes())),)


def _options(model: Any) -> Iterator[Edits]:
    """Each integer of an option table, alone or with its like along the width, and each of a vector."""
    for i, operator in enumerate(model.subgraphs[0].operators):
        path = f"subgraphs[0].operators[{i}].builtinOptions."
        fields = vars(operator.builtinOptions) if operator.builtinOptions else {}
        for (name, old), value in product(fields.items(), INTEGERS):
            if isinstance(old, list | np.ndarray):
                whole = list(map(int, old))
                for place in range(len(whole)):
                    yield (Edit(path + name, [*whole[:place], value, *whole[place + 1 :]]),)
            elif isinstance(old, int) and not isinstance(old, bool):
                yield (Edit(path + name, value),)
                if name in ALONG_WIDTH:
                    yield Edit(path + name, value), Edit(path + ALONG_WIDTH[name], value)


if __name__ == "__main__":
    raise SystemExit(main())
