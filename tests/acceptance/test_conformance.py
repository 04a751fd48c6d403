"""``tests/conformance/exceptions.csv`` is true: what it lists does not pass, what it does not list does.

By default a sample in fp32; with ``TFLGPU_CONFORMANCE=full`` every case in both precisions. What is listed runs always,
on both runtimes: where an answer differs from TFLite's by more than the tolerance, it is the better one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import get_args

import pytest

import tflgpu
from tests.conformance.cases import Entry, index
from tests.conformance.exceptions import Exceptions
from tests.conformance.judge import Precision
from tests.conformance.worker import Job, outcome_of, run_entry, worker
from tests.conftest import missing
from tests.quick import on_first_runtime
from tests.safety.sandbox import Sandbox

DEVICE = "Intel"
MOST_WRONG = 10  # of the outcomes of all cases in both precisions
EVERY = 25  # one case in so many of each zip and kind
REGENERATE = "python -m tests.conformance.run --write-exceptions --zip"
EXCEPTIONS = Exceptions.read()


def sample() -> list[Entry]:
    """At least one case of each zip, evenly spread over its kinds."""
    zips = groupby(sorted(index(), key=lambda e: (e.zip, e.kind, e.id)), key=lambda e: e.zip)
    return [entry for _, entries in zips for entry in list(entries)[::EVERY]]


def jobs() -> list[Job]:
    if os.environ.get("TFLGPU_CONFORMANCE") == "full":
        return [(entry, precision) for entry in index() for precision in get_args(Precision)]
    return [(entry, "fp32") for entry in sample()]


JOBS = jobs()


@pytest.fixture(scope="module")
def process() -> Iterator[Sandbox[Job]]:
    if not any(DEVICE in device.platform for device in tflgpu.devices()):
        missing(f"the OpenCL runtime of {DEVICE}")
    with worker(DEVICE) as process:
        yield process


@pytest.mark.quick(when=lambda entry, precision: (entry, precision) in JOBS[::8])
@pytest.mark.parametrize(("entry", "precision"), JOBS, ids=str)
def test_case(entry: Entry, precision: Precision, process: Sandbox[Job]) -> None:
    outcome = outcome_of(process.run((entry, precision)))
    expected = EXCEPTIONS.expected(entry, precision)
    if outcome.verdict == "pass":
        assert expected == "pass", f"it passes now: remove it from the list, `{REGENERATE} {entry.zip}`"
    assert outcome.verdict == expected, f"{outcome.verdict}: {outcome.reason}"


def test_every_exception_speaks_of_a_case(shared: Path) -> None:
    """``shared`` makes it fail on a server without the data, where the tests above would only be absent."""
    precisions: tuple[Precision, ...] = get_args(Precision)
    used = {EXCEPTIONS.covering(entry, precision) for entry in index() for precision in precisions}
    assert set(EXCEPTIONS.rows) <= used


WRONG = [(e, p) for e in index() for p in get_args(Precision) if EXCEPTIONS.expected(e, p) == "wrong"]


@pytest.mark.quick(
    when=lambda entry, precision, device_name: (entry, precision) in WRONG[::4] and on_first_runtime(device_name)
)
@pytest.mark.parametrize(("entry", "precision"), WRONG, ids=str)
def test_a_wrong_answer_is_nearer_to_double_precision(entry: Entry, precision: Precision, device_name: str) -> None:
    """Than the recorded one is, and by far."""
    found = run_entry(entry, precision, device_name).errors
    assert found is not None, "its answer in double precision is not known"
    assert found.got < found.recorded / 1000


def test_few_answers_are_wrong() -> None:
    assert len(WRONG) <= MOST_WRONG
    for row in EXCEPTIONS.rows.values():
        assert row.outcome == "wrong" and float(row.error) < float(row.recorded_error)


def test_every_wrong_answer_has_a_cause() -> None:
    """Written by hand into the list; regenerating it keeps them."""
    assert [key for key, row in EXCEPTIONS.rows.items() if row.outcome != "unsupported" and not row.cause] == []
