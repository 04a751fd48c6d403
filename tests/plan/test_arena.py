"""The arena: what lives at the same time lies apart, and not much memory is wasted."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tflgpu.plan.placement import ALIGNMENT, Lifetime, lower_bound, part_bytes, place

WHOLE = 1 << 62  # bytes of a part: more than any arena has


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetime:
    first = draw(st.integers(0, 20))
    return Lifetime(draw(st.integers(1, 5000)), first, first + draw(st.integers(0, 6)))


PLANS = st.lists(lifetimes(), max_size=30).map(lambda many: dict(enumerate(many)))


@given(PLANS)
def test_tensors_that_live_together_lie_apart(plan: dict[int, Lifetime]) -> None:
    offsets, size = place(plan, WHOLE)
    assert offsets.keys() == plan.keys()
    for a, b in combinations(plan, 2):
        apart = offsets[a] + plan[a].size <= offsets[b] or offsets[b] + plan[b].size <= offsets[a]
        together = plan[a].first <= plan[b].last and plan[b].first <= plan[a].last
        assert apart or not together
    assert all(offset % ALIGNMENT == 0 for offset in offsets.values())
    assert all(offsets[key] + life.size <= size for key, life in plan.items())


@given(PLANS)
def test_no_arena_is_below_the_bound(plan: dict[int, Lifetime]) -> None:
    _, size = place(plan, WHOLE)
    assert size >= lower_bound(plan)


def test_the_bound_is_the_largest_sum_alive_at_once() -> None:
    unit = ALIGNMENT
    plan = {0: Lifetime(3 * unit, 0, 1), 1: Lifetime(2 * unit, 1, 2), 2: Lifetime(4 * unit, 3, 3)}
    assert lower_bound(plan) == 5 * unit


def test_memory_is_used_again() -> None:
    chain = {i: Lifetime(1000, i, i + 1) for i in range(50)}
    offsets, size = place(chain, WHOLE)
    assert size == lower_bound(chain)
    assert len(set(offsets.values())) == 2


def test_nothing_needs_no_memory() -> None:
    assert place({}, WHOLE) == ({}, 0)
    assert lower_bound({}) == 0


@given(PLANS, st.integers(0, 12000))
def test_no_tensor_lies_in_two_parts(plan: dict[int, Lifetime], most: int) -> None:
    part = part_bytes(plan, most)
    assert part <= max(most, 2 * ALIGNMENT, *(life.size + ALIGNMENT for life in plan.values()), ALIGNMENT)
    offsets, size = place(plan, part)
    assert all(offset // part == (offset + plan[key].size - 1) // part for key, offset in offsets.items())
    for a, b in combinations(plan, 2):
        apart = offsets[a] + plan[a].size <= offsets[b] or offsets[b] + plan[b].size <= offsets[a]
        assert apart or plan[a].last < plan[b].first or plan[b].last < plan[a].first
    if place(plan, WHOLE)[1] <= part:
        assert (offsets, size) == place(plan, WHOLE)
