"""Barrier intervals against their definition, kernel by kernel and byte by byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tflgpu.plan.barrier_intervals import Use, intervals

USES = st.builds(
    lambda memory, begin, size, written: Use(memory, begin, begin + size, written),
    st.integers(-1, 1),
    st.integers(0, 12),
    st.integers(0, 6),
    st.booleans(),
)


def conflict(one: list[Use], two: list[Use]) -> bool:
    return any(
        a.memory == b.memory and (a.written or b.written) and {*range(a.begin, a.end)} & {*range(b.begin, b.end)}
        for a in one
        for b in two
    )


@settings(max_examples=100)
@given(st.lists(st.lists(USES, max_size=3), max_size=12))
def test_an_interval_is_the_least_above_those_of_conflicting_kernels(kernels: list[list[Use]]) -> None:
    found = intervals(kernels)
    for number, uses in enumerate(kernels):
        before = [found[i] for i in range(number) if conflict(kernels[i], uses)]
        assert found[number] == 1 + max(before, default=-1)
