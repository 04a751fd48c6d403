"""Run the conformance cases: ``python -m tests.conformance.run --help``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.conformance.cases import FOLDER, Entry, Kind, index
from tests.conformance.exceptions import Exceptions, Results
from tests.conformance.judge import Precision
from tests.conformance.outcome import Outcome, Verdict
from tests.conformance.worker import Job, run_all

SLOWEST = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 if nothing is wrong and nothing failed, unsupported cases aside; else 1."""
    options = _parse(arguments)
    jobs = _jobs(options.zip, options.kind, options.precision)
    console = Console()
    outcomes = track(
        run_all(jobs, options.device, options.jobs), "cases", total=len(jobs), console=Console(stderr=True)
    )
    results = dict(zip(jobs, outcomes, strict=True))
    console.print(_summary(results))
    console.print(_slowest(results))
    if options.json:
        options.json.write_text(json.dumps(_failures(results), indent=1) + "\n")
    if options.write_exceptions:
        Exceptions.read().updated(results).write()
    return int(any(o.verdict in ("wrong", "error") for o in results.values()))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=main.__doc__)
    parser.add_argument("--device", default="Intel", help="as Options.device takes it (default: %(default)s)")
    parser.add_argument("--precision", nargs="+", choices=get_args(Precision), default=list(get_args(Precision)))
    parser.add_argument("--zip", nargs="+", default=[], metavar="NAME.zip", help="only these (default: all)")
    parser.add_argument("--kind", nargs="+", default=[], choices=get_args(Kind), help="only these (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write every case that does not pass, with its reason")
    parser.add_argument(
        "--write-exceptions", action="store_true", help="make the outcomes those that test_conformance.py expects"
    )
    options = parser.parse_args(arguments)
    if options.write_exceptions and (options.kind or set(options.precision) != set(get_args(Precision))):
        parser.error("--write-exceptions needs every kind and both precisions of a zip")
    if unknown := set(options.zip) - {entry.zip for entry in index()}:
        parser.error(f"{FOLDER} has no {', '.join(sorted(unknown))}")
    return options


def _jobs(zips: Sequence[str], kinds: Sequence[str], precisions: Sequence[Precision]) -> list[Job]:
    chosen = [e for e in index() if (not zips or e.zip in zips) and (not kinds or e.kind in kinds)]
    return [(entry, precision) for entry in chosen for precision in precisions]


def _summary(results: Results) -> Table:
    verdicts = get_args(Verdict)
    table = Table("zip", "cases", *verdicts, "seconds", title="outcomes", box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    zips = sorted({entry.zip for entry, _ in results})
    for name in zips:
        _add_row(table, name, [o for (entry, _), o in results.items() if entry.zip == name])
    table.add_section()
    _add_row(table, f"{len(zips)} zips", list(results.values()))
    return table


def _add_row(table: Table, name: str, outcomes: Sequence[Outcome]) -> None:
    counts = (sum(o.verdict == verdict for o in outcomes) for verdict in get_args(Verdict))
    seconds = sum(o.seconds for o in outcomes)
    table.add_row(name, str(len(outcomes)), *(str(count or "") for count in counts), f"{seconds:.1f}")


def _slowest(results: Results) -> Table:
    table = Table("case", "precision", "outcome", "seconds", title=f"the {SLOWEST} slowest", box=box.SIMPLE)
    for (entry, precision), o in sorted(results.items(), key=lambda item: -item[1].seconds)[:SLOWEST]:
        table.add_row(str(entry), precision, o.verdict, f"{o.seconds:.2f}")
    return table


def _failures(results: Results) -> list[dict[str, Any]]:
    return [_failure(entry, precision, o) for (entry, precision), o in results.items() if o.verdict != "pass"]


def _failure(entry: Entry, precision: Precision, outcome: Outcome) -> dict[str, Any]:
    return {
        "zip": entry.zip,
        "case_id": entry.id,
        "kind": entry.kind,
        "precision": precision,
        "outcome": outcome.verdict,
        "reason": outcome.reason,
        "seconds": round(outcome.seconds, 3),
        **({"errors": asdict(outcome.errors)} if outcome.errors else {}),
    }


if __name__ == "__main__":
    raise SystemExit(main())
