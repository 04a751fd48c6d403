"""Cases in which nothing is drawn."""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

from hypothesis import strategies as st

from tests.ops.case import Case, Net
from tests.ops.tolerance import ARITHMETIC
from tests.support.template_cases import CASES


def draws_nothing(_: st.SearchStrategy[Any]) -> NoReturn:
    """In place of hypothesis' ``draw``."""
    raise AssertionError("these cases are fixed")


@cache
def fixed_cases() -> dict[str, Case]:
    """Small models that together use every template, by name."""
    found = {}
    for build in CASES:
        net = Net(draws_nothing, seed=1)
        net.output(build(net))
        found[build.__name__] = net.case(ARITHMETIC)
    return found
