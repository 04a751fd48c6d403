"""Short probes of a device: how fast it multiplies, how fast its memories are, and what waiting costs.

Times are the host's, of enough steps or launches: not every driver has a clock of the device that can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import perf_counter

import numpy as np
import pyopencl as cl

from tflgpu.runtime.opencl.program import compile_program, make_kernel
from tflgpu.runtime.opencl.session import DeviceFailures, Session
from tflgpu.target.probes import ProbeConvolution, ProbeProgram, Probes
from tflgpu.target.target import VEC4_BYTES

# Steps of a probe are added until they take this number of round trips of a launch, or this number of seconds,
# whichever is less, so that a launch takes little of it.
ROUND_TRIPS = 50
ENOUGH = 2e-3
DEADLINE = 1.0  # seconds from the first probe on; after it none is measured again
ROUNDS = 8  # the best of them counts: other work only adds to a time
GROWTH = 4
MOST_STEPS = 1 << 14  # some drivers end longer loops (quirks.py)

GROUPS = 16  # of each compute unit
COPY_BYTES = {"gpu": 1 << 28, "cpu": 1 << 25, "accelerator": 1 << 25}  # more than caches hold; a CPU clears them first
SHARED_BYTES, CACHED_BYTES = 1 << 20, 1 << 13
LINE_BYTES = 256  # loads that wait for one another read one in each
WARP, MATRIX_MACS = 32, 16 * 8 * 16  # work-items of a product on tensor cores, and its multiply-adds
SPIN_LIMIT = 1 << 20  # looks for other work-groups
USUAL_CLOCK = 1e9  # where a device does not say
LEAST_LOCKSTEP, MOST_LOCKSTEP = 8, 64


def measure_probes(session: Session, program: ProbeProgram) -> Probes:
    """Measure a device, in about a second.

    Args:
        session: The device.
        program: The source of the probes, made for the device's limits.

    Raises:
        BuildError: A probe does not compile.
        DeviceError: A probe fails.
    """
    with DeviceFailures(session.device, "measuring it"):
        return _Bench(session, program).measured()


@dataclass
class _Probe:
    """One measurement. run: enqueues a number of steps. seconds: the least that one of them took."""

    run: Callable[[int], None]
    steps: int = 1
    seconds: float = inf


class _Bench:
    """The kernels of the probes, buffers for them, and what was measured so far."""

    def __init__(self, session: Session, program: ProbeProgram) -> None:
        self._start = perf_counter()
        self._session, self._sizes = session, program
        self._program = compile_program(session.context, program.source)
        device = session.device
        self._items = program.group * GROUPS * device.compute_units
        largest = min(COPY_BYTES[device.type], device.limits.allocation_bytes, device.memory // 8)
        self._bytes = 1 << largest.bit_length() - 1
        self._enough = ENOUGH
        flags = cl.mem_flags.READ_WRITE
        self._source, self._target = (cl.Buffer(session.context, flags, self._bytes) for _ in range(2))
        for buffer in (self._source, self._target):
            cl.enqueue_fill_buffer(session.queue, buffer, np.zeros(1, np.float32), 0, self._bytes)
        session.queue.finish()

    def measured(self) -> Probes:
        device, sizes, probes = self._session.device, self._sizes, self._probes()
        for probe in probes.values():  # some drivers compile a kernel at its first launch
            self._time(probe)
        self._enough = min(ENOUGH, ROUND_TRIPS * min(self._time(probes["round_trip"]) for _ in range(ROUNDS)))
        end = perf_counter() + DEADLINE
        for probe in probes.values():
            self._find_steps(probe)
        # One round after the other, so that a moment in which the device is busy spoils no probe.
        for _ in range(ROUNDS):
            for probe in probes.values():
                if perf_counter() < end:
                    self._time(probe)
        seconds = {name: probe.seconds for name, probe in probes.items()}
        lanes = sizes.chains * self._items
        floats = {width: lanes * width / seconds[f"multiply_add_float{width}"] for width in sizes.widths}
        halves = [lanes * width / seconds[f"multiply_add_half{width}"] for width in sizes.widths if sizes.half]
        loaded = VEC4_BYTES * sizes.loads * self._items
        return Probes(
            compute_units=device.compute_units,
            clock=1e6 * device.handle.max_clock_frequency or USUAL_CLOCK,
            float_macs=max(floats.values()),
            half_macs=max(halves, default=0.0),
            matrix_macs=lanes / WARP * MATRIX_MACS / seconds["multiply_matrices"] if sizes.matrix_units else 0.0,
            vector_width=max(floats, key=lambda width: floats[width]),
            tile_products=tuple(
                (c.pixels, c.slices, c.products / seconds[c.kernel]) for c in sizes.convolutions if c.split_k == 1
            ),
            split_products=sum((c.products / seconds[c.kernel] for c in sizes.convolutions if c.split_k > 1), 0.0),
            global_bytes=2 * self._bytes / seconds["copy"],
            shared_bytes=loaded / seconds["read_shared"],
            cached_bytes=loaded / seconds["read_cached"],
            local_bytes=loaded / seconds["read_local"] if sizes.local else 0.0,
            memory_latency=seconds["wait_for_loads"],
            exchange=seconds["exchange"] if sizes.local else 0.0,
            launch=seconds["launch"],
            round_trip=seconds["round_trip"],
            grid_barrier=seconds["meet"] if sizes.grid_barriers else 0.0,
            lockstep=self._lockstep(),
            seconds=perf_counter() - self._start,
        )

    def _probes(self) -> dict[str, _Probe]:
        sizes, source, target = self._sizes, self._source, self._target
        elements = ("float", "half") if sizes.half else ("float",)
        arithmetic = [f"multiply_add_{element}{width}" for element in elements for width in sizes.widths]
        if sizes.matrix_units:
            arithmetic.append("multiply_matrices")
        once = sizes.group * self._session.device.compute_units
        found = (
            {name: self._steps(name, self._items, target) for name in arithmetic}
            | {each.kernel: self._convolution(each) for each in sizes.convolutions}
            | {
                "read_shared": self._steps("read_cached", self._items, source, target, SHARED_BYTES // VEC4_BYTES),
                "read_cached": self._steps("read_cached", self._items, source, target, CACHED_BYTES // VEC4_BYTES),
                "wait_for_loads": self._steps("wait_for_loads", 1, source, target, self._bytes // LINE_BYTES),
                "copy": self._launches("copy", self._bytes // VEC4_BYTES, source, target),
                "launch": self._launches("nothing", 1, target),
                "round_trip": self._launches("nothing", 1, target, wait=True),
            }
        )
        if sizes.local:
            found["read_local"] = self._steps("read_local", self._items, source, target)
            found["exchange"] = self._steps("exchange", once, target)
        if sizes.grid_barriers:  # the source is all zero, as the words of a barrier have to be
            found["meet"] = self._steps("meet", once, source, target, SPIN_LIMIT)
        return found

    def _steps(self, name: str, items: int, *arguments: cl.Buffer | int) -> _Probe:
        """Return the probe of a kernel whose last argument is a number of steps.

        Args:
            name: Of the kernel.
            items: Work-items.
            arguments: The others, in order.
        """
        kernel, group = make_kernel(self._program, name), min(items, self._sizes.group)
        for place, argument in enumerate(arguments):
            kernel.set_arg(place, np.int32(argument) if isinstance(argument, int) else argument)

        def run(steps: int) -> None:
            kernel.set_arg(len(arguments), np.int32(steps))
            cl.enqueue_nd_range_kernel(self._session.queue, kernel, (items,), (group,))

        return _Probe(run)

    def _launches(
        self, name: str, items: int, *arguments: cl.Buffer | np.uint64, group: int = 0, wait: bool = False
    ) -> _Probe:
        """Return the probe of launches of a kernel.

        Args:
            name: Of the kernel.
            items: Work-items.
            arguments: Its arguments.
            group: Work-items of a work-group; 0 for the usual number.
            wait: Whether the host waits for each launch before the next.
        """
        queue, kernel, size = self._session.queue, make_kernel(self._program, name), group or self._sizes.group
        kernel.set_args(*arguments)

        def run(launches: int) -> None:
            for _ in range(launches):
                cl.enqueue_nd_range_kernel(queue, kernel, (items,), (min(items, size),))
                if wait:
                    queue.finish()

        return _Probe(run)

    def _convolution(self, convolution: ProbeConvolution) -> _Probe:
        """Return the probe of launches of a convolution, which writes to one buffer and reads from the other."""
        buffers = self._target, self._source, self._source, self._source
        arguments = (value for buffer in buffers for value in (buffer, np.uint64(0)))
        items = convolution.groups * convolution.local_size
        return self._launches(convolution.kernel, items, *arguments, group=convolution.local_size)

    def _find_steps(self, probe: _Probe) -> None:
        """Raise the number of steps until they take long enough."""
        while min(self._time(probe), self._time(probe)) < self._enough and probe.steps < MOST_STEPS:
            probe.steps *= GROWTH
            probe.seconds = inf

    def _time(self, probe: _Probe) -> float:
        """Return the seconds that all steps take."""
        start = perf_counter()
        probe.run(probe.steps)
        self._session.queue.finish()
        seconds = perf_counter() - start
        probe.seconds = min(probe.seconds, seconds / probe.steps)
        return seconds

    def _lockstep(self) -> int:
        """How many work-items run in lockstep, as a power of two."""
        multiple = make_kernel(self._program, "read_cached").get_work_group_info(
            cl.kernel_work_group_info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE, self._session.device.handle
        )
        return min(max(1 << int(multiple).bit_length() - 1, LEAST_LOCKSTEP), MOST_LOCKSTEP)
