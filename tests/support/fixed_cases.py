"""Cases in which nothing is drawn."""

from __future__ import annotations

from functools import cache

from tests.ops.case import Case, Net
from tests.support.template_cases import CASES


@cache
def fixed_cases() -> dict[str, Case]:
    """Small models that together use every template, by name."""
    found = {}
    for build in CASES:
        net = Net(seed=1)
        net.output(build(net))
        found[build.__name__] = net.case()
    return found
