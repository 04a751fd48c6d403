"""The claiming executor's kernel under every schedule of its work-groups: see :mod:`tests.schedules.machine`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.schedules.claiming import HOST, Claiming, Edit
from tests.schedules.kernel_c import compile_kernel
from tests.schedules.machine import State, WrongScheduleError, explore
from tests.schedules.networks import Layers, visits

LAYERS = ((2,), (1, 1))
CHAIN = ((1,), (1,))


def claims(layers: Layers, groups: int, spin_limit: int, *, brief: bool = False, edit: Edit | None = None) -> None:
    """Run a network three times, of which the first two overflow its counters."""
    kernel = Claiming(layers, brief=brief, edit=edit)
    once = kernel.run_all(State([], visits(layers)), groups, spin_limit)
    state = State([], visits(layers))
    for pointer in once.words:
        state.set(pointer, -once.value(pointer) & 0xFFFFFFFF)
    again = kernel.run_all(state, groups, spin_limit)
    assert not any(map(again.value, again.words)), "each run adds the same to its counters"
    kernel.run_all(again, groups, spin_limit)


def helps(layers: Layers, spin_limit: int, runs: int, edit: Edit | None = None) -> None:
    """Run the first work-group as a host does, and another one that may help it, and come or leave at any time."""
    kernel, state = Claiming(layers, edit=edit), State(["words"], visits(layers))
    host = compile_kernel(kernel.text + HOST, "host")
    state.launch(host, {"spin_limit": spin_limit, "end": kernel.end, "runs": runs}, 1)
    kernel.begin(state, 2, 1, spin_limit, lingers=2, first=1)
    over = set[int]()
    explore(state, lambda end: over.add(end.value(("words", 0))), 100_000)
    assert runs in over and over <= {1, runs}, "a run ends, whoever leaves it to others"


@pytest.mark.parametrize(
    ("layers", "groups", "spin_limit"),
    [(LAYERS, 2, 0), (CHAIN, 2, 1), (((3, 1),), 2, 1), (((1,),), 3, 0), (((9,), (1,)), 1, 0)],
)
def test_each_tile_is_computed_once_after_its_inputs(layers: Layers, groups: int, spin_limit: int) -> None:
    claims(layers, groups, spin_limit)


def test_a_chain_is_computed_by_one_group() -> None:
    claims(CHAIN, 2, 1, brief=True)


@pytest.mark.parametrize(("layers", "spin_limit", "runs"), [(CHAIN, 0, 1), (((2,),), 1, 1), (((1,),), 0, 2)])
def test_helpers_may_come_and_leave_at_any_time(layers: Layers, spin_limit: int, runs: int) -> None:
    helps(layers, spin_limit, runs)


def claims_layers(edit: Edit) -> None:
    claims(LAYERS, 2, 0, edit=edit)


def claims_many(edit: Edit) -> None:
    claims(((9,), (1,)), 1, 0, edit=edit)


def helps_chain(edit: Edit) -> None:
    helps(CHAIN, 0, 1, edit=edit)


@pytest.mark.parametrize(
    ("check", "old", "new", "which"),
    [
        *((helps_chain, "memory_order_acquire", "memory_order_relaxed", which) for which in range(3)),
        *((helps_chain, "memory_order_release", "memory_order_relaxed", which) for which in range(2)),
        (claims_layers, "&count)) < length", "&count)) <= length", 0),
        (claims_layers, "seen + *count,", "seen,", 0),
        (claims_layers, "claimed + owner * 16", "claimed", 0),
        (claims_layers, "|| reaches(finished + first, all, spin_limit)", "|| true", 0),
        (claims_layers, "- value) < 0", "- value) < -1", 0),
        (claims_layers, "tile += begun", "tile += share", 0),
        (claims_layers, "== groups - 1", "== groups - 2", 0),
        (claims_many, "done += count", "done += 1", 0),
        (helps_chain, "words[2] - 1", "words[2]", 0),
        (helps_chain, "together && behind == end", "behind == end", 0),
        (helps_chain, "if (stays)", "if (true)", 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_seen(check: Callable[[Edit], None], old: str, new: str, which: int) -> None:
    """All memory orders are needed, but for those of a kernel's end, which a queue waits for."""
    with pytest.raises((WrongScheduleError, AssertionError)):
        check((old, new, which))
