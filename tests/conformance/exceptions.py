"""``exceptions.csv``: every case that does not pass today, and why.

A row names a case, or with ``*`` all cases of a zip that share what the row does name. Regenerate it with
``python -m tests.conformance.run --write-exceptions``, which keeps the causes: those are written by hand, in plain
words, for what a tolerance alone does not explain.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conformance.cases import Entry
from tests.conformance.judge import Precision
from tests.conformance.outcome import Outcome, Verdict

FILE = Path(__file__).with_name("exceptions.csv")
ANY = "*"
REASON_LENGTH = 240  # characters; the JSON report of a run has the whole text

Results = Mapping[tuple[Entry, Precision], Outcome]


class Key(NamedTuple):
    """The cases that a row speaks of."""

    zip: str
    case_id: str
    kind: str
    precision: str

    @classmethod
    def of(cls, entry: Entry, precision: Precision) -> Key:
        return cls(entry.zip, entry.id, entry.kind, precision)

    def widened(self) -> Iterator[Key]:
        """Every key that covers this one, the widest first and itself last."""
        for case_id, kind in ((ANY, ANY), (ANY, self.kind), (self.case_id, self.kind)):
            for precision in (ANY, self.precision):
                yield Key(self.zip, case_id, kind, precision)


class Row(NamedTuple):
    """The outcome of a row's cases, and its cause.

    error, recorded_error: how far a wrong answer and the recorded output are from double precision, where known.
    """

    outcome: Verdict
    reason: str
    error: str = ""
    recorded_error: str = ""
    cause: str = ""


class Exceptions:
    """The rows by what they speak of."""

    def __init__(self, rows: Mapping[Key, Row]) -> None:
        self.rows = dict(rows)

    @classmethod
    def read(cls, file: Path = FILE) -> Exceptions:
        if not file.exists():
            return cls({})
        with file.open(newline="") as lines:
            return cls({Key(*row[:4]): Row(_verdict(row[4]), *row[5:]) for row in list(csv.reader(lines))[1:]})

    def write(self, file: Path = FILE) -> None:
        with file.open("w", newline="") as lines:
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow((*Key._fields, *Row._fields))
            writer.writerows((*key, *row) for key, row in sorted(self.rows.items()))

    def covering(self, entry: Entry, precision: Precision) -> Key | None:
        """The row that speaks of a case, if any does."""
        return next((key for key in Key.of(entry, precision).widened() if key in self.rows), None)

    def expected(self, entry: Entry, precision: Precision) -> Verdict:
        key = self.covering(entry, precision)
        return "pass" if key is None else self.rows[key].outcome

    def updated(self, results: Results) -> Exceptions:
        """Return the list with new rows for the zips in ``results``, which must hold all cases of these zips in both
        precisions.

        Where a row speaks of the same cases as before, and of the same outcome, its cause stays.
        """
        zips = {entry.zip for entry, _ in results}
        kept = {key: row for key, row in self.rows.items() if key.zip not in zips}
        new = {key: row._replace(cause=self._cause(key, row.outcome)) for key, row in _summarized(results)}
        return Exceptions(kept | new)

    def _cause(self, key: Key, outcome: Verdict) -> str:
        before = self.rows.get(key)
        return before.cause if before is not None and before.outcome == outcome else ""


def _summarized(results: Results) -> Iterator[tuple[Key, Row]]:
    """The fewest rows that tell the outcomes apart. Only unsupported cases share one: each fault is to be seen."""
    groups: defaultdict[Key, list[Outcome]] = defaultdict(list)
    for job, outcome in results.items():
        for key in Key.of(*job).widened():
            groups[key].append(outcome)
    chosen: set[Key] = set()
    for job, outcome in results.items():
        if outcome.verdict != "pass":
            chosen.add(next(key for key in Key.of(*job).widened() if _alike(key, groups[key])))
    for key in chosen:
        yield key, Row(groups[key][0].verdict, _reason(groups[key]), *_errors(groups[key]))


def _alike(key: Key, outcomes: Iterable[Outcome]) -> bool:
    """Whether one row can say it all; it must, if it speaks of one case in one precision."""
    verdicts = {outcome.verdict for outcome in outcomes}
    return len(verdicts) == 1 and (key.case_id != ANY or verdicts == {"unsupported"})


def _reason(outcomes: Iterable[Outcome]) -> str:
    """Each distinct line of the reasons once, as one line of bounded length."""
    lines = dict.fromkeys(line.strip() for outcome in outcomes for line in outcome.reason.splitlines())
    text = " | ".join(lines)
    return text if len(text) <= REASON_LENGTH else text[: REASON_LENGTH - 3] + "..."


def _errors(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """The largest ones, of the answers and of the recorded outputs; nothing if any is unknown."""
    known = [outcome.errors for outcome in outcomes if outcome.errors is not None]
    if len(known) < len(outcomes):
        return "", ""
    return f"{max(e.got for e in known):.2g}", f"{max(e.recorded for e in known):.2g}"


def _verdict(text: str) -> Verdict:
    for verdict in ("unsupported", "wrong", "error"):
        if text == verdict:
            return verdict
    raise ValueError(f"{FILE.name}: unknown outcome {text!r}")
