"""The base of all executors: the device memory of an executable, its inputs, outputs and states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.runtime.device_memory import DeviceMemory, Place, Value
from tflgpu.runtime.executors.buffers import HeldState, allocated, read_value, write_value
from tflgpu.runtime.executors.in_flight import InFlightRun, InFlightRuns
from tflgpu.runtime.opencl.program import Program, set_number
from tflgpu.runtime.opencl.session import Session, copy
from tflgpu.runtime.transfer import Passage, Transfer

# Begin and end of a launch on the device, in seconds since the first launch of the run began.
Interval = tuple[float, float]

PERCENTILES = (10, 90)  # of the time of a launch in several runs, which tell how much it varies


class LaunchTime(NamedTuple):
    """When a launch began and ended, in the median of several runs; its shortest and longest time, without outliers."""

    begin: float
    end: float
    short: float
    long: float


NOWHERE: Mapping[int, DeviceMemory] = {}  # all outputs go to the host

# Inputs in order, arrays of the host with the model's element types and shapes -> new arrays of all outputs by name.
PreparedRun = Callable[[Sequence[Array]], dict[str, Array]]


class Use(NamedTuple):
    """A kernel's argument for an input or output. The next argument is the offset, in items of ``item_bytes``."""

    kernel: cl.Kernel
    argument: int
    item_bytes: int


class Executor(ABC):
    """Runs one executable, and owns its device memory. Not thread-safe: the caller serializes the calls.

    Raises pyopencl's errors too; who calls it turns them into DeviceErrors, see :class:`DeviceFailures`.
    """

    def __init__(self, executable: Executable, program: Program, session: Session) -> None:
        """Allocate, upload constants and bind every argument. Raises DeviceError if memory runs out."""
        self.executable = executable
        self.session = session
        # Type of offsets in the arguments of kernels. A device without 64-bit integers has no buffers that need them.
        self._offset_type = np.uint64 if session.device.int64 else np.uint32
        # Kept here because clSetKernelArg does not keep a buffer alive.
        self._buffers = self._allocate()
        self.executable = executable.without_constants()
        self._transfer = self._make_transfer()
        self._in_flight = InFlightRuns(self._check)
        self._begun: float | None = None  # of the first run whose failure would not be known
        self._bindings = executable.bindings
        self._output_numbers = range(len(executable.outputs))
        # The callers' memory that kernels have as arguments now, by binding.
        self._moved: dict[int, DeviceMemory] = {}
        self._given: dict[int, DeviceMemory] | None = {}  # of callers, the last time
        self._copied: set[int] = set()
        self._to_host: Sequence[int] = self._output_numbers
        # Cached arguments: where all inputs are arrays on the device, the next call with the same ones binds nothing.
        self._repeated: tuple[Sequence[Value], Mapping[int, DeviceMemory]] | None = None
        # The arguments of the bindings that can lie in callers' memory, and the offsets in bytes that they have now.
        self._uses: dict[int, list[Use]] = {number: [] for number in executable.movable}
        self._offsets: dict[int, int] = {}
        self._held_uses: dict[int, list[tuple[cl.Kernel, int]]] = {number: [] for number in executable.held}
        self._held: Sequence[HeldState] | None = None  # what callers hold, of the last run
        self._bind(program)
        self.reset_state()

    def _allocate(self) -> list[cl.Buffer]:
        """Return the executable's buffers. Raises DeviceError if memory runs out."""
        buffers = enumerate(self.executable.buffers)
        return [allocated(buffer, self.session, partial(self._new_buffer, number)) for number, buffer in buffers]

    @abstractmethod
    def _make_transfer(self) -> Transfer:
        """How this executor copies inputs and outputs on its device."""

    @abstractmethod
    def _bind(self, program: Program) -> None:
        """Set the arguments of every kernel, and note the uses of bindings that can lie in callers' memory."""

    @abstractmethod
    def _start(self, ready: Sequence[cl.Event] = ()) -> cl.Event | None:
        """Enqueue all kernels of one inference. Returns the event of the last one, if there are any.

        ready: events that the first one waits for.
        """

    def _start_silently(self) -> None:
        """:meth:`_start` without an event."""
        self._start()

    def _check(self, begun: float) -> None:  # noqa: B027 - mostly the queue reports every failure
        """Raise DeviceError if the kernels report a failure. Called when the inferences since ``begun`` are over."""

    @abstractmethod
    def _measure(self) -> list[Interval]:
        """Run all kernels once and wait. Returns when each launch began and ended on the device."""

    def warm_up(self) -> None:
        """Run every kernel once on the current contents of the buffers, then reset the state."""
        self.launch()
        self.reset_state()

    def reset_state(self) -> None:
        """Set every variable to its initial value."""
        queue, buffers = self.session.queue, self.executable.buffers
        for state in self.executable.states:
            buffer = self._buffers[state.buffer]
            if state.held:
                continue
            if state.initial is None:
                cl.enqueue_fill(queue, buffer, np.zeros(1, np.uint8), buffers[state.buffer].bytes)
            else:
                copy(queue, buffer, state.initial)

    def buffer(self, number: int) -> cl.Buffer:
        """Return the memory of a buffer of the executable.

        Args:
            number: The buffer's place in the executable.
        """
        return self._buffers[number]

    def hold(self, states: Sequence[HeldState]) -> None:
        """Let the next runs have these values of the states that callers hold.

        Args:
            states: In the order of the executable's held states.
        """
        self._held = states
        held = (state for state in self.executable.states if state.held)
        for state, memory in zip(held, states, strict=True):
            self._put(state.buffer, memory.current)
            if state.next is not None:
                self._put(state.next, memory.spare)

    def _put(self, number: int, buffer: cl.Buffer) -> None:
        """Tell the kernels where a buffer that callers hold is."""
        if self._buffers[number] is not buffer:
            for kernel, argument in self._held_uses[number]:
                kernel.set_arg(argument, buffer)
            self._buffers[number] = buffer

    def run(self, inputs: Sequence[Value], outputs: Mapping[int, DeviceMemory] = NOWHERE) -> list[Array]:
        """Run one inference, and wait for it. If it fails, the variables are undefined until :meth:`reset_state`.

        Args:
            inputs: In order; arrays have the element types of the inputs.
            outputs: Device memory for some of the outputs, by number.

        Returns:
            New arrays of the other outputs.
        """
        if self._repeated is not None and self._repeated[0] is inputs and self._repeated[1] is outputs:
            self._in_flight.wait_all()
        else:
            sources = {n: value for n, value in enumerate(inputs) if isinstance(value, DeviceMemory)}
            self.write(inputs, sources | {len(inputs) + n: memory for n, memory in outputs.items()})
            may_repeat = len(sources) == len(inputs) and not self._copied
            self._repeated = (inputs, outputs) if may_repeat else None
        self.step()
        return self.results()

    def prepared(self, names: Sequence[str]) -> PreparedRun | None:
        """Return :meth:`run` for arrays of the host, as a function that decides and looks up nothing.

        Only brief runs have one: for them each operation of Python counts.

        Args:
            names: Those of the outputs.

        Returns:
            None if there is none.
        """
        return None

    def write(self, inputs: Sequence[Value], given: Mapping[int, DeviceMemory] = NOWHERE) -> None:
        """Start to copy the inputs to the device.

        Args:
            inputs: In order.
            given: Callers' memory for inputs and outputs, by binding.
        """
        self._in_flight.wait_all()  # inputs need not go by way of the queue
        self._settle(given)
        if sent := [(n, a) for n, a in enumerate(inputs) if not isinstance(a, DeviceMemory)]:
            self._transfer.write(sent)
        self._copy_in(given)

    def step(self) -> None:
        """Enqueue all kernels of one inference, on the inputs that are there."""
        self._begun = self._begun or perf_counter()
        self._start_silently()
        self._keep_states()

    def results(self) -> list[Array]:
        """Wait for the queue. Returns new arrays of the outputs, but for those with memory that was given for the run.

        Raises DeviceError if the kernels report a failure.
        """
        self._copy_out(self._given or NOWHERE)
        results = self._transfer.read(self._to_host)
        self._check(self._begun or 0)
        self._begun = None
        return results

    def set_state(self, binding: Binding, value: Array) -> None:
        """Give a state a value. It is copied before this returns.

        Args:
            binding: The state's memory.
            value: Of the state's shape.
        """
        write_value(self.session.queue, self._buffers[binding.buffer], binding, value)

    def state(self, binding: Binding) -> Array:
        """Wait for the queue. Returns the value of a state as a new array."""
        return read_value(self.session.queue, self._buffers[binding.buffer], binding)

    def enqueue(self, inputs: Sequence[Value], outputs: Mapping[int, DeviceMemory]) -> InFlightRun:
        """Start :meth:`run`. Arrays on the host may change as soon as this returns.

        Args:
            inputs: In order.
            outputs: Device memory for some of the outputs, by number.
        """
        self._in_flight.make_room()
        on_host = [(n, a) for n, a in enumerate(inputs) if not isinstance(a, DeviceMemory)]
        to_host = [n for n in self._output_numbers if n not in outputs]
        passage = self._transfer.passage(on_host, to_host) if on_host or to_host else Passage()
        given = {n: a for n, a in enumerate(inputs) if isinstance(a, DeviceMemory)} | passage.inputs
        given |= {len(inputs) + n: m for n, m in (*outputs.items(), *passage.outputs.items())}
        self._settle(given)
        self._copy_in(given, passage.ready)
        begun, last = perf_counter(), self._start(passage.ready)
        last = self._keep_states() or last
        last = self._copy_out(given) or last
        event, queue = passage.leave(last), self.session.queue
        queue.flush()
        flight = InFlightRun(begun, event or cl.enqueue_marker(queue), passage, (inputs, outputs))
        self._in_flight.add(flight)
        return flight

    def collect(self, flight: InFlightRun) -> list[Array]:
        """Wait for an inference. To be called once.

        Args:
            flight: Returned by :meth:`enqueue`.

        Returns:
            New arrays of its outputs, but for those that were to stay on the device.

        Raises:
            DeviceError: The kernels report a failure.
        """
        self._in_flight.wait(flight)
        return flight.passage.arrays()

    def _settle(self, given: Mapping[int, DeviceMemory]) -> None:
        """Let the kernels use the callers' memory, given by binding, where possible, and the model's own otherwise.

        There, what is given is copied: kernels touch bytes outside of it, or would write bytes that are still to be
        read.
        """
        if given == self._given:
            return
        self._given = self._repeated = None  # nothing is known if this fails
        usable = {n: m for n, m in given.items() if self._bindings[n].exact and m.is_aligned}
        for n in self._output_numbers:
            binding = n + len(self.executable.inputs)
            if binding in usable and any(usable[binding].overlaps(m) for other, m in given.items() if other != binding):
                del usable[binding]
        for n in self._moved.keys() | usable.keys():
            memory = usable.get(n)
            self._place(n, *(self._home(n) if memory is None else memory.place))
        self._moved, self._given, self._copied = usable, dict(given), given.keys() - usable.keys()
        self._to_host = [n for n in self._output_numbers if len(self.executable.inputs) + n not in given]

    def _place(self, binding: int, buffer: cl.Buffer, offset: int) -> None:
        """Tell the kernels where an input or output is. Outputs are numbered after the inputs; offset is in bytes."""
        # If this fails, no offset is known.
        moved = offset != self._offsets.pop(binding, None)
        for kernel, argument, item_bytes in self._uses[binding]:
            kernel.set_arg(argument, buffer)
            if moved:
                set_number(kernel, argument + 1, self._offset_type(offset // item_bytes))
        self._offsets[binding] = offset

    def _home(self, binding: int) -> Place:
        """Return the model's own memory of an input or output."""
        return self._buffers[self._bindings[binding].buffer], self._bindings[binding].offset

    def _copy_in(self, given: Mapping[int, DeviceMemory], ready: Sequence[cl.Event] = ()) -> None:
        for binding in self._copied:
            if binding < len(self.executable.inputs):
                self._copy(given[binding].place, self._home(binding), given[binding].bytes, ready)

    def _copy_out(self, given: Mapping[int, DeviceMemory]) -> cl.Event | None:
        """Copy outputs; return the event of the last copy, if there is any."""
        events: tuple[cl.Event, ...] = ()
        for binding in self._copied:
            if binding >= len(self.executable.inputs):
                events = self._copy(self._home(binding), given[binding].place, given[binding].bytes) or events
        return events[-1] if events else None

    def _copy(self, source: Place, target: Place, size: int, ready: Sequence[cl.Event] = ()) -> tuple[cl.Event, ...]:
        places = {"src_offset": source[1], "dst_offset": target[1], "byte_count": size}
        return copy(self.session.queue, target[0], source[0], wait_for=ready or None, **places)

    def profile(self, inputs: Sequence[Array], runs: int) -> list[LaunchTime]:
        """Return when each launch began and ended, as medians over several inferences. The state is restored.

        Medians keep the order: launches that did not overlap in any run do not overlap here.

        Args:
            inputs: In order.
            runs: Number of inferences that count; one before them warms up.

        Raises:
            DeviceError: The executor cannot measure.
        """
        queue = self.session.queue
        states = [self._buffers[s.buffer] for s in self.executable.states]
        kept = [np.empty(buffer.size, np.uint8) for buffer in states]
        for buffer, array in zip(states, kept, strict=True):
            cl.enqueue_copy(queue, array, buffer)
        self.write(inputs)
        times = [self._measure() for _ in range(runs + 1)]  # the first run warms up
        for buffer, array in zip(states, kept, strict=True):
            cl.enqueue_copy(queue, buffer, array)
        taken = np.diff(times[1:], axis=-1)[..., 0]
        spread = np.percentile(taken, PERCENTILES, axis=0).T
        return [LaunchTime(*map(float, (*m, *s))) for m, s in zip(np.median(times[1:], axis=0), spread, strict=True)]

    def launch(self) -> None:
        """Run the kernels on the inputs in device memory, and wait; nothing is copied.

        If work-groups give up waiting at a barrier, the next :meth:`run` or :meth:`warm_up` reports it.
        """
        self._begun = self._begun or perf_counter()
        self._start_silently()
        self.session.queue.finish()

    def _keep_states(self) -> cl.Event | None:
        """Copy the value that this run wrote for each variable to where the next run reads it.

        Of what callers hold, the next run reads it where it is.
        """
        last, held = None, iter(self._held or ())
        for state in self.executable.states:
            memory = next(held, None) if state.held else None
            if memory is not None and state.next is not None:
                memory.swap()
                self._put(state.buffer, memory.current)
                self._put(state.next, memory.spare)
            elif state.next is not None:
                last = cl.enqueue_copy(self.session.queue, self._buffers[state.buffer], self._buffers[state.next])
        return last

    def _new_buffer(self, number: int, size: int) -> cl.Buffer:
        """Return a new buffer of ``size`` bytes, which kernels or callers write."""
        return cl.Buffer(self.session.context, cl.mem_flags.READ_WRITE, size)


class OneKernelExecutor(Executor):
    """Runs all launches in one kernel, whose first arguments are the model's memory, and every movable binding."""

    @property
    def _memory(self) -> Sequence[cl.Buffer]:
        """The buffers that the kernel gets."""
        return self._buffers

    def _bind_whole(self, kernel: cl.Kernel) -> int:
        """Set the first arguments of the kernel. Returns the number of the next one."""
        for i, buffer in enumerate(self._memory):
            kernel.set_arg(i, buffer)
        argument = len(self._memory)
        for number in self.executable.movable:
            buffer, offset = self._home(number)
            kernel.set_arg(argument, buffer)
            set_number(kernel, argument + 1, self._offset_type(offset))
            argument += 2
        return argument

    def _argument_of(self, number: int) -> int:
        """Return the argument that is a buffer which callers hold."""
        return number

    def _follow(self, kernel: cl.Kernel) -> None:
        """Note the uses of movable bindings, and of what callers hold, by the kernel."""
        for i, number in enumerate(self.executable.movable):
            self._uses[number].append(Use(kernel, len(self._memory) + 2 * i, 1))
        for number in self.executable.held:
            self._held_uses[number].append((kernel, self._argument_of(number)))
