"""The least time that an operator could take on a device."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import tflgpu
from benchmarks.contest.ceilings import GROUP, Ceilings, empty_kernel
from benchmarks.sweep.bundles import seconds_in_turn
from benchmarks.sweep.drawn_shapes import Drawn
from tflgpu.measure.device_model import probe
from tflgpu.page.report_page import ceilings_of
from tflgpu.runtime.opencl.session import open_session


@dataclass(frozen=True)
class Roofline:
    """The ceilings of a device, and the seconds of a barrier of all compute units."""

    ceilings: Ceilings
    barrier: float

    @property
    def facts(self) -> dict[str, object]:
        return {
            "bytes_per_second": round(self.ceilings.bytes_per_second),
            "flops": {precision: round(rate) for precision, rate in self.ceilings.flops.items()},
            "launch_us": round(1e6 * self.ceilings.launch_seconds, 2),
            "barrier_us": round(1e6 * self.barrier, 2),
        }

    def seconds(self, drawn: Drawn, precision: str) -> float:
        """Results are outputs of the model, of four bytes each."""
        read, written = drawn.elements
        size = read * (4 if precision == "fp32" else 2) + 4 * written
        waiting = self.ceilings.launch_seconds + (drawn.steps - 1) * self.barrier
        return self.ceilings.attainable([(size, drawn.macs)], precision) + waiting


def measure_roofline(device: tflgpu.Device) -> Roofline:
    session = open_session(device)
    probes = probe(session)
    empty, _unused = empty_kernel(session)
    launch = seconds_in_turn(session.queue, [(empty, (GROUP,), (GROUP,), (0,))])
    return Roofline(Ceilings(**asdict(ceilings_of(probes)), launch_seconds=launch), probes.grid_barrier)
