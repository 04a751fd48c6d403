"""The cost function of kernels for GPUs: what overlaps, what is hidden, and what counts once for each tile."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tflgpu.kernels.demand import Demand, Phase, cycles
from tflgpu.target import Target
from tflgpu.target.corrections import corrected, corrections

TARGET = Target(family="gpu", compute_units=4, executor="launch", storage="half")


def test_units_side_by_side_overlap_and_phases_do_not() -> None:
    phases = Phase(10, busy=(3.0, 5.0)), Phase(2, busy=(7.0,))
    assert Demand(tiles=4, phases=phases, latency=100).cycles(TARGET) == 100 + 10 * 5 + 2 * 7


def test_the_busiest_compute_unit_counts() -> None:
    demand = Demand(tiles=9, phases=(Phase(1, (50.0,)),), latency=100)
    assert demand.cycles(TARGET) == 3 * 150


@pytest.mark.parametrize(("resident", "step"), [(1, 40.0), (2, 20.0), (8, 10.0)])
def test_resident_groups_hide_waits_but_no_work(resident: int, step: float) -> None:
    demand = Demand(tiles=32, phases=(Phase(5, (10.0,), wait=40.0),), latency=0, resident=resident)
    assert demand.cycles(TARGET) == 8 * 5 * step


def test_no_more_groups_are_resident_than_there_are_tiles() -> None:
    few = Demand(tiles=4, phases=(Phase(1, (), wait=40.0, barrier=8.0),), latency=16, resident=8)
    assert few.cycles(TARGET) == replace(few, resident=1).cycles(TARGET) == 16 + 40 + 8


def test_a_kernel_takes_at_least_what_nothing_hides() -> None:
    demand = Demand(tiles=4, phases=(Phase(1, (5.0,)),), latency=0, least=70.0)
    assert demand.cycles(TARGET) == 70


def test_work_is_what_has_a_demand() -> None:
    @dataclass(frozen=True)
    class Counted:
        loads: int

        def demand(self, target: Target) -> Demand:
            return Demand(target.compute_units, (Phase(self.loads, (2.0,)),), latency=1)

    assert cycles(Counted(loads=3), TARGET) == 7


def test_corrections_are_sound() -> None:
    """Each row says beside what, where and when it was measured."""
    assert corrections()
    for row in corrections().values():
        assert row.factor > 0 and row.beside and row.device and row.measured and len(row.date) == len("2026-11-26")
        assert corrected(row.kernel, 10.0, 10.0) == 10 * row.factor
    with pytest.raises(KeyError):
        corrected("no such kernel", 1.0, 1.0)
