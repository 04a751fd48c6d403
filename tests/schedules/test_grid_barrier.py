"""The persistent executor's kernel and its grid barrier under every schedule: see :mod:`tests.schedules.machine`."""

from __future__ import annotations

from functools import partial

import pytest

from tests.schedules.claiming import Edit, replaced
from tests.schedules.kernel_c import compile_kernel
from tests.schedules.machine import Cell, State, WrongScheduleError, memory_after
from tests.schedules.networks import INPUT, Layers, is_complete, network, visits
from tflgpu.codegen.whole_kernels import render_persistent

LAYERS = ((1,), (2,), (1,))
BRANCHES = ((2,), (1, 1))
SIZE = 2  # work-items of a work-group


def meet(layers: Layers, *, ptx: bool, spin_limit: int = 1, awaits: bool = False, edit: Edit | None = None) -> None:
    """Run a network twice, the second time with the other value of the barrier's bit."""
    source, executable = network(layers, SIZE, awaits=awaits)
    text, persistent = render_persistent(source, executable, ptx=ptx)
    (run,) = persistent.runs
    program = compile_kernel(replaced(text, *edit) if edit else text, run.function)
    state = State(["memory"], visits(layers))
    for number in range(2):
        state.cells[INPUT] = Cell(number)
        state.launch(program, {"spin_limit": spin_limit, "timed": 1}, 2, SIZE)
        state = memory_after(state, partial(_is_whole, layers, number))
        clock = [state.value(("memory", executable.ranges[-1] + place)) for place in range(len(persistent.order) + 1)]
        assert all(clock), "the clock is read before the first launch and after each"


def _is_whole(layers: Layers, run: int, end: State) -> bool:
    """Whether no work-group has given up: else a host starts afresh."""
    gave_up = end.value(("memory", 1))
    assert gave_up or is_complete(end, layers, SIZE, run)
    return not gave_up


@pytest.mark.parametrize(
    ("layers", "ptx", "spin_limit", "awaits"),
    [(LAYERS, True, 1, False), (BRANCHES, True, 1, True), (BRANCHES, False, 1, False)],
)
def test_work_groups_meet_or_give_up(layers: Layers, ptx: bool, spin_limit: int, awaits: bool) -> None:
    meet(layers, ptx=ptx, spin_limit=spin_limit, awaits=awaits)


BARRIER = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"
FENCE = "mem_fence(CLK_GLOBAL_MEM_FENCE);"


@pytest.mark.parametrize(
    ("ptx", "old", "new", "which"),
    [
        (True, "red.release", "red.relaxed", 0),
        (True, "ld.acquire", "ld.relaxed", 0),
        (True, "if (!met) return;", "", 0),
        (True, "flips ^= 1u;", "", 0),
        (True, "0x80000001u", "0x80000000u", 0),
        (True, "meeting.grid + 1, 1u", "meeting.grid + 1, 0u", 0),
        (True, "tile += groups", "tile += 1", 1),
        *((False, old, "", which) for old in (BARRIER, FENCE) for which in range(2)),
        *((True, BARRIER, f"barrier({flag});", which) for flag in BARRIER[8:-2].split(" | ") for which in range(2)),
    ],
)
def test_a_fault_is_seen(ptx: bool, old: str, new: str, which: int) -> None:
    with pytest.raises((WrongScheduleError, AssertionError)):
        meet(LAYERS, ptx=ptx, edit=(old, new, which))
