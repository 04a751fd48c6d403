"""Tests of the parts between the cases and the judge: processes that fail, and the list of exceptions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.cases import Entry, Kind, index, load
from tests.conformance.exceptions import Exceptions, Key, Results, Row
from tests.conformance.judge import Precision
from tests.conformance.outcome import Outcome, Verdict
from tests.conformance.worker import Job, outcome_of, worker
from tests.safety.sandbox import Sandbox

PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")


def _behave(entry: Entry, precision: Precision, device: str) -> Outcome:
    """A runner that does what the case's id says."""
    if entry.id == "crash":
        os._exit(3)
    if entry.id == "hang":
        time.sleep(3600)
    return Outcome("pass", f"{entry.id} {precision} {device}", 0.0)


@pytest.fixture
def behaving() -> Iterator[Sandbox[Job]]:
    with worker("device", limit=10.0, runner=_behave) as process:
        yield process


def _named(name: str) -> Entry:
    return Entry("a.zip", name, "float")


def test_a_crash_costs_one_case(behaving: Sandbox[Job]) -> None:
    assert outcome_of(behaving.run((_named("crash"), "fp32"))).reason == "the process died with exit code 3"
    assert outcome_of(behaving.run((_named("next"), "fp16"))).reason == "next fp16 device"


def test_a_hang_costs_one_case(behaving: Sandbox[Job]) -> None:
    assert outcome_of(behaving.run((_named("first"), "fp32"))).verdict == "pass"  # the process has started
    behaving.seconds = 0.2
    hang = outcome_of(behaving.run((_named("hang"), "fp32")))
    assert hang == Outcome("error", "no answer after 0.2 s", 0.2)
    behaving.seconds = 10.0
    assert outcome_of(behaving.run((_named("next"), "fp32"))).verdict == "pass"


def results_of(*rows: tuple[str, str, Kind, Verdict, Verdict]) -> Results:
    """Rows of zip, id, kind, and the verdicts in fp32 and in fp16."""
    return {
        (Entry(zip_name, case_id, kind), precision): Outcome(
            verdict, "" if verdict == "pass" else f"why {case_id}", 0.0
        )
        for zip_name, case_id, kind, *verdicts in rows
        for precision, verdict in zip(PRECISIONS, verdicts, strict=True)
    }


RESULTS = results_of(
    ("all.zip", "1", "float", "unsupported", "unsupported"),
    ("all.zip", "2", "int", "unsupported", "unsupported"),
    ("half.zip", "1", "float", "pass", "unsupported"),
    ("half.zip", "2", "float", "pass", "unsupported"),
    ("kind.zip", "1", "float", "pass", "pass"),
    ("kind.zip", "2", "int8", "unsupported", "unsupported"),
    ("kind.zip", "3", "int8", "unsupported", "unsupported"),
    ("mixed.zip", "1", "float", "unsupported", "pass"),
    ("mixed.zip", "2", "float", "pass", "wrong"),
    ("mixed.zip", "3", "float", "unsupported", "unsupported"),
    ("wrong.zip", "1", "float", "wrong", "wrong"),
    ("wrong.zip", "2", "float", "wrong", "wrong"),
)


def test_exceptions_tell_every_outcome_apart(tmp_path: Path) -> None:
    file = tmp_path / "exceptions.csv"
    Exceptions({}).updated(RESULTS).write(file)
    exceptions = Exceptions.read(file)
    assert {job: exceptions.expected(*job) for job in RESULTS} == {job: o.verdict for job, o in RESULTS.items()}


def test_exceptions_share_rows_for_what_is_unsupported() -> None:
    assert Exceptions({}).updated(RESULTS).rows == {
        Key("all.zip", "*", "*", "*"): Row("unsupported", "why 1 | why 2"),
        Key("half.zip", "*", "*", "fp16"): Row("unsupported", "why 1 | why 2"),
        Key("kind.zip", "*", "int8", "*"): Row("unsupported", "why 2 | why 3"),
        Key("mixed.zip", "1", "float", "fp32"): Row("unsupported", "why 1"),
        Key("mixed.zip", "2", "float", "fp16"): Row("wrong", "why 2"),
        Key("mixed.zip", "3", "float", "*"): Row("unsupported", "why 3"),
        Key("wrong.zip", "1", "float", "*"): Row("wrong", "why 1"),
        Key("wrong.zip", "2", "float", "*"): Row("wrong", "why 2"),
    }


def test_update_keeps_causes_of_what_is_as_before() -> None:
    known = Exceptions({key: row._replace(cause="known") for key, row in Exceptions({}).updated(RESULTS).rows.items()})
    assert {row.cause for row in known.updated(RESULTS).rows.values()} == {"known"}
    changed = known.updated(
        results_of(
            ("wrong.zip", "1", "float", "unsupported", "wrong"),
            ("wrong.zip", "2", "float", "wrong", "wrong"),
        )
    )
    causes = {tuple(key)[1:]: row.cause for key, row in changed.rows.items() if key.zip == "wrong.zip"}
    assert causes == {
        ("1", "float", "fp32"): "",
        ("1", "float", "fp16"): "",
        ("2", "float", "*"): "known",
    }


def test_update_replaces_whole_zips_and_no_others() -> None:
    before = Exceptions({}).updated(RESULTS)
    after = before.updated(
        results_of(("wrong.zip", "1", "float", "pass", "pass"), ("wrong.zip", "2", "float", "pass", "pass"))
    )
    assert after.rows == {key: row for key, row in before.rows.items() if key.zip != "wrong.zip"}


def test_index_and_zips_agree(shared: Path) -> None:
    entries = index(shared / "conformance")
    assert len(entries) == len(set(entries)) > 0
    case = load(entries[0], shared / "conformance")
    assert (case.zip, case.id, case.kind) == (entries[0].zip, entries[0].id, entries[0].kind)
    assert len(case.quanta) == len(case.expected) > 0 and case.inputs and case.model
