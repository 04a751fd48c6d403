"""The least time that an operator could take on a device."""

from __future__ import annotations

from dataclasses import dataclass

import pyopencl as cl

import tflgpu
from benchmarks.contest.ceilings import Ceilings
from benchmarks.sweep.bundles import seconds_in_turn
from benchmarks.sweep.drawn_shapes import Drawn
from tflgpu.measure.device_model import probe
from tflgpu.runtime.opencl.program import compile_program, make_kernel
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
    macs = {"fp32": probes.float_macs, "fp16": probes.matrix_macs or probes.float_macs}
    flops = {precision: 2 * rate for precision, rate in macs.items()}
    empty = make_kernel(
        compile_program(session.context, "__kernel void nothing(__global float4 *unused) {}"), "nothing"
    )
    unused = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 16)  # set_args keeps no buffer alive
    empty.set_args(unused)
    kernel = seconds_in_turn(session.queue, [(empty, (256,), (256,))])
    return Roofline(Ceilings(probes.global_bytes, flops, kernel), probes.grid_barrier)
