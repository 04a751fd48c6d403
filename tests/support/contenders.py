"""Contenders for tests of the benchmarks: some that run, that raise, and that take their process with them."""

from __future__ import annotations

import os

from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, Skipped, timed

NAME = "odd"
METRIC = "launch"


def contenders(case: Case) -> list[Contender]:
    if case.model == "skipped":
        raise Skipped("not for this machine")
    if case.model == "dead":
        os._exit(3)
    print("said to nobody")
    return [
        Contender("good", "launch", timed(lambda: None), lambda: 0.5),
        Contender("bad", "launch", lambda runs: [1 / 0]),
        Contender("deadly", "host", lambda runs: os._exit(4)),
    ]
