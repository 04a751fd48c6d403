"""Damage models and judge what becomes of them: ``python -m tests.safety.mutants.mutate --help``."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.safety.mutants.mutation import mutant
from tests.safety.mutants.shrink import shrunk
from tests.safety.mutants.verdict import Court, Outcome
from tests.safety.sandbox import share_out


@dataclass(frozen=True)
class Finding:
    """The outcome of the mutant of a seed. smallest: for a fault, the fewest edits of the simplest model that show
    it.
    """

    seed: int
    mutant: str
    outcome: Outcome
    cause: str
    details: str = ""
    smallest: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 if there is no fault, else 1."""
    options = _parse(arguments)
    console = Console()
    known = read_findings(options.json) if options.json else {}
    seeds = range(options.seed, options.seed + options.cases)
    missing = [seed for seed in seeds if seed not in known]
    findings = [known[seed] for seed in seeds if seed in known]
    with ExitStack() as stack:
        lines = stack.enter_context(options.json.open("a")) if options.json else None
        run = track(_judged(missing, options.jobs), "mutants", total=len(missing), console=Console(stderr=True))
        for finding in run:
            findings.append(finding)
            if lines:
                lines.write(json.dumps(asdict(finding)) + "\n")
                lines.flush()
    console.print(summary(findings))
    faults = [finding for finding in findings if finding.outcome == "fault"]
    for fault in faults:
        console.print(f"{fault.seed} {fault.smallest or fault.mutant}\n    {fault.cause}", markup=False)
        if len(seeds) == 1:
            console.print(fault.details, markup=False)
    return int(bool(faults))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.safety.mutants.mutate", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first mutant; the next has the next seed")
    parser.add_argument("--jobs", type=int, default=2, help="pairs of processes (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="a line for each mutant; what the file has already is not done again")
    return parser.parse_args(arguments)


def read_findings(file: Path) -> dict[int, Finding]:
    if not file.is_file():
        return {}
    findings = [Finding(**json.loads(line)) for line in file.read_text().splitlines()]
    return {finding.seed: finding for finding in findings}


def _judged(seeds: Sequence[int], jobs: int) -> Iterator[Finding]:
    drawing = Lock()  # hypothesis draws the networks, in one thread at a time

    def finding(court: Court, seed: int) -> Finding:
        with drawing:
            found = mutant(seed, shared=True)
        verdict = court.judge(found)
        smallest = ""
        if verdict.outcome == "fault":
            smallest = str(shrunk(found, lambda other: court.judge(other) == verdict))
        return Finding(seed, str(found), verdict.outcome, verdict.cause, verdict.details, smallest)

    return share_out(seeds, Court, jobs, finding)


def summary(findings: Sequence[Finding]) -> Table:
    table = Table("outcome", "cause", "mutants", title=f"{len(findings)} mutants", box=box.SIMPLE)
    counts = Counter((finding.outcome, finding.cause) for finding in findings)
    for (outcome, cause), count in sorted(counts.items(), key=lambda item: (item[0][0], -item[1])):
        table.add_row(outcome, cause, str(count))
    return table


if __name__ == "__main__":
    raise SystemExit(main())
