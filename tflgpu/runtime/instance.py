"""An artifact on a device: programs built, memory allocated, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.artifact import (
    Artifact,
    CompiledPartition,
    CpuPartition,
    DevicePartition,
    pieces_of,
    planned_shapes,
    with_pieces,
    without_constants,
)
from tflgpu.artifact.cache import Cache
from tflgpu.artifact.executable import SharedConstants, shared_constants
from tflgpu.graph.layout import Shape
from tflgpu.model.run_time_numbers import trimmed
from tflgpu.model.tensor_info import TensorIndex
from tflgpu.report.profile import KernelTime, Stopwatch
from tflgpu.runtime.device_memory import DeviceMemory, Value
from tflgpu.runtime.engine import PieceEngine, engine_of
from tflgpu.runtime.executors.buffers import HeldState
from tflgpu.runtime.executors.claiming_executor import ClaimingExecutor
from tflgpu.runtime.executors.executor import Executor, LaunchTime, PreparedRun
from tflgpu.runtime.executors.in_flight import Arrived, InFlightRun
from tflgpu.runtime.input_check import Targets
from tflgpu.runtime.model_variables import VariableValues
from tflgpu.runtime.opencl.build import Binaries, build, check_groups, keep, makes_drafts
from tflgpu.runtime.opencl.process import LONG, InterruptibleRuns, interruptible
from tflgpu.runtime.opencl.program import Program
from tflgpu.runtime.opencl.session import Session

if TYPE_CHECKING:
    from tflgpu.fallback.cpu_engine import CpuEngine, SharedCpuEngine
    from tflgpu.fallback.guarded_process import GuardedProcess


def kernel_times(
    pieces: Sequence[tuple[DevicePartition, list[LaunchTime] | None]], codes: Mapping[int, str]
) -> Iterator[KernelTime]:
    """Yield the times of each launch, as if each piece followed the one before.

    Args:
        pieces: With the begin and the end of each launch; None for a piece that was not measured.
        codes: The model's operators by index.
    """
    start = 0.0
    for number, (piece, intervals) in enumerate(pieces):
        if intervals is None:
            continue
        for launch, (begin, end, short, long) in zip(piece.executable.launches, intervals, strict=True):
            yield KernelTime(
                launch.function,
                tuple(codes[i] for i in launch.operators),
                start + begin,
                end - begin,
                launch.macs,
                launch.bytes,
                launch.groups,
                launch.local_size,
                launch.interval,
                number,
                short,
                long,
            )
        start += max((time.end for time in intervals), default=0.0)


Array = NDArray[Any]

# For each piece on the device, when its launches began and ended; None for one that the run did not need. And for each
# partition on the CPU, the seconds.
Timed = tuple[list[tuple[DevicePartition, "list[LaunchTime] | None"]], list[float]]

OpenPiece = Callable[[DevicePartition, Any, Session], Executor]

Engine: TypeAlias = "Executor | CpuEngine | SharedCpuEngine | PieceEngine[Any]"


class Instance:
    """Runs the partitions of an artifact in order. Not thread-safe: the caller serializes the calls."""

    def __init__(
        self,
        artifact: Artifact,
        session: Session,
        clock: Stopwatch,
        cache: Cache | None = None,
        trial_timeout: float | None = None,
        open_piece: OpenPiece | None = None,
        *,
        drafts: bool = False,
        built: Mapping[str, tuple[Program, Binaries]] | None = None,
    ) -> None:
        """Raise BuildError, DeviceError, and UnsupportedError if LiteRT also refuses a partition for the CPU.

        Raises WideGroupsError if the compiler allows a kernel fewer work-items than were planned.

        clock: gets the time of each stage. cache: has binaries that the artifact does not have. trial_timeout: of
        ``Options``. open_piece: makes the executor of each piece, in order; by default :func:`open_executor`.
        drafts: whether what has to be compiled may be slower than what :meth:`keep_binaries` makes of it. built:
        programs by source that exist already, with their binaries.
        """
        self._open_piece = open_piece or open_executor
        self.artifact = artifact
        self._session = session
        self._drafts = drafts and makes_drafts(session)
        self._trial_timeout = trial_timeout
        self._guarded: GuardedProcess | None = None  # runs partitions on the CPU for the first time
        self._built = dict(built or {})  # programs by source, which pieces may share
        self._programs: dict[tuple[int, int], Any] = {}  # that had to be compiled, by partition and piece
        started = [self._start(number, clock, cache) for number in range(len(artifact.partitions))]
        self.artifact = replace(artifact, partitions=tuple(partition for partition, _ in started))
        self._engines = [engine for _, engine in started]
        self._built.clear()
        self._whole = self._only_engine()
        pieces = [p for p in self.artifact.partitions if isinstance(p, DevicePartition)]
        self._has_checks = any(p.checks or p.trims for p in pieces)
        self._has_trims = any(p.trims for p in pieces)
        self._runs = [InterruptibleRuns(_work(partition)) for partition in self.artifact.partitions]
        self.outputs = [info for _, info in artifact.outputs]
        self.output_names = [info.name for info in self.outputs]
        self.to_host = Targets({}, self.output_names)
        # A run of little work, for inputs that fit, so brief that no thread waits for it; None if there is none.
        self.prepared: PreparedRun | None = None
        if self._whole is not None and not self._has_checks:
            self.prepared = self._whole.prepared(self.output_names)
        self._own_states: list[HeldState] | None = None
        self._variables = VariableValues()  # of the run; this instance's own, until callers give some
        self._has_own_variables = True
        self._in_place = object()  # token: see VariableValues.in_place_for
        self.holds = bool(artifact.bound) or artifact.has_variables  # whether :meth:`hold` has to be called before runs
        bound = [
            (engine, [form for form in artifact.bound if form.partition == number])
            for number, engine in enumerate(self._engines)
        ]
        self._in_litert = [
            cast("SharedCpuEngine", engine)
            for partition, engine in self._partitions()
            if isinstance(partition, CpuPartition) and partition.entry is not None
        ]
        self._holding = [(engine, forms) for engine, forms in bound if forms and isinstance(engine, Executor)]
        if self.holds:
            self._hold(None)

    def _start(self, number: int, clock: Stopwatch, cache: Cache | None) -> tuple[CompiledPartition, Engine]:
        """Return a partition with the binaries of its programs, and the engine that runs it."""
        partition = self.artifact.partitions[number]
        if isinstance(partition, CpuPartition):
            interpreter = self._interpreter(partition, cache)
            clock.lap("interpreter")
            return partition, interpreter
        pieces, executors = [], list[Executor]()
        for place, piece in enumerate(pieces_of(partition)):
            if piece.source not in self._built:
                # Parts that the driver does not link into one cannot be kept: a warm start without a binary makes one.
                parts = piece.executable.parts if self._drafts or cache is None else 1
                self._built[piece.source] = build(
                    piece.source, self._session, piece.binaries, cache, parts=parts, draft=self._drafts
                )
            program, binaries = self._built[piece.source]
            if not binaries:
                check_groups(program, piece.executable, self._session)
                self._programs[number, place] = program
            clock.lap("build")
            executors.append(self._open_piece(piece, program, self._session))
            pieces.append(replace(piece, binaries=binaries))
            clock.lap("upload")
        return with_pieces(partition, pieces), engine_of(partition, executors)

    def keep_binaries(self, cache: Cache, clock: Stopwatch) -> bool:
        """Store the binaries of programs that had to be compiled, in the artifact and in the cache.

        Args:
            cache: Where to keep them.
            clock: Takes the time until compilers are done.

        Returns:
            Whether these programs are drafts, so that an instance of the artifact is faster than this one.
        """
        partitions, are_drafts = list(self.artifact.partitions), self._drafts and bool(self._programs)
        for (number, place), program in self._programs.items():
            pieces = list(pieces_of(partitions[number]))
            interruptible(_executors_of(self._engines[number])[place].warm_up)
            clock.lap("build")
            binaries = keep(program, pieces[place].source, self._session, cache)
            pieces[place] = replace(pieces[place], binaries=binaries)
            partitions[number] = with_pieces(partitions[number], pieces)
            clock.lap("store")
        self.artifact = replace(self.artifact, partitions=tuple(partitions))
        self._programs.clear()
        return are_drafts

    def constants(self) -> Iterator[tuple[SharedConstants, cl.Buffer]]:
        """Its allocations of constants that other signatures of the file may share."""
        for executor in self._executors():
            for number, shared in shared_constants(executor.executable).items():
                yield shared, executor.buffer(number)

    def warm_up(self) -> None:
        """Run the partitions on the device once."""
        for engine in self._executors():
            engine.warm_up()

    def launch(self) -> None:
        """Run the partitions on the device, on the current contents of its memory."""
        for engine in self._executors():
            engine.launch()

    def _only_engine(self) -> Executor | None:
        """Return the executor that runs the whole model, from its inputs to its outputs; None if there is none."""
        if len(self._engines) != 1 or not isinstance(self._engines[0], Executor):
            return None
        artifact = self.artifact
        interface = [tuple(tensor for tensor, _ in side) for side in (artifact.inputs, artifact.outputs)]
        return (
            self._engines[0] if interface == [artifact.partitions[0].inputs, artifact.partitions[0].outputs] else None
        )

    def release_constants(self) -> None:
        """Drop the host's copies of weights and binaries, which the device has."""
        self.artifact = without_constants(self.artifact)

    def _interpreter(self, partition: CpuPartition, cache: Cache | None) -> CpuEngine | SharedCpuEngine:
        from tflgpu.fallback.cpu_engine import open_engine
        from tflgpu.fallback.guarded_process import GuardedProcess

        if self._guarded is None:
            self._guarded = GuardedProcess(self._trial_timeout)
        return open_engine(partition, self.artifact, self._guarded, cache)

    def run(self, inputs: Sequence[Value], outputs: Mapping[int, DeviceMemory]) -> list[Array]:
        """Run one inference, and wait for it.

        Args:
            inputs: Values of the model's inputs in order.
            outputs: Device memory for some of the outputs, by number.

        Returns:
            New arrays of the other outputs.
        """
        whole = self._whole
        if whole is not None and not (outputs and self._has_trims):
            runs = self._runs[0]
            if runs.are_short:  # as make, in as few operations as possible
                begun = perf_counter()
                arrays = whole.run(inputs, outputs)
                if perf_counter() - begun > LONG and self.prepared is None:
                    runs.are_short = False
            else:
                runs.settle()
                arrays = runs.make(whole.run, inputs, outputs)
            return checked_results(self.artifact.partitions[0], arrays) if self._has_checks else arrays
        self._settle()
        return self._run_in_parts(inputs, outputs)

    def enqueue(self, inputs: Sequence[Value], outputs: Mapping[int, DeviceMemory]) -> InFlightRun:
        """Start :meth:`run`; :meth:`collect` has its result.

        A model of which a part runs on the CPU, or in a loop or a branch, has run when this returns.

        Args:
            inputs: Values of the model's inputs in order.
            outputs: Device memory for some of the outputs, by number.
        """
        self._settle()
        if self._whole is not None and not (outputs and self._has_trims):
            return self._whole.enqueue(inputs, outputs)
        arrays = self._run_in_parts(inputs, outputs)
        return InFlightRun(perf_counter(), cl.enqueue_marker(self._session.queue), Arrived(arrays))

    def collect(self, flight: InFlightRun) -> list[Array]:
        """Wait for an inference that was enqueued. To be called once.

        Args:
            flight: Returned by :meth:`enqueue`.
        """
        if self._whole is None or isinstance(flight.passage, Arrived):
            return flight.passage.arrays()
        return checked_results(self.artifact.partitions[0], self._whole.collect(flight))

    def _run_in_parts(self, inputs: Sequence[Value], outputs: Mapping[int, DeviceMemory]) -> list[Array]:
        values, _ = self._run_partitions(inputs)
        kept = [values[t] for v in self.artifact.passed for t in (v.before, v.after) if t in values]
        results = _alone([values[tensor] for tensor, _ in self.artifact.outputs], [*inputs, *kept])
        for number, memory in outputs.items():
            _check_shape(f"output {self.output_names[number]!r}", memory.shape, results[number].shape)
            memory.write(self._session.queue, results[number])
        return [array for number, array in enumerate(results) if number not in outputs]

    def _run_partitions(self, inputs: Sequence[Value]) -> tuple[dict[TensorIndex, Array], list[float]]:
        """Return the values of the model's inputs, of tensors between its partitions, and of its outputs, all on the
        host.

        And the seconds that each partition took.
        """
        queue = self._session.queue
        on_host = [value.read(queue) if isinstance(value, DeviceMemory) else value for value in inputs]
        values = dict(zip((tensor for tensor, _ in self.artifact.inputs), on_host, strict=True))
        for variable in self.artifact.passed:
            if variable.before is not None:
                info = variable.info
                shape = None if info.free_axes else info.shape
                values[variable.before] = self._variables.value(variable.key, info).on_host(shape)
        seconds: list[float] = []
        with self._guarded or nullcontext():
            for (partition, engine), runs in zip(self._partitions(), self._runs, strict=True):
                for tensor, shape in planned_shapes(partition).items():
                    _check_shape(f"tensor {tensor} of the file", shape, values[tensor].shape)
                start = perf_counter()
                run = partial(engine.run, [values[t] for t in partition.inputs])
                makes_thread = isinstance(partition, DevicePartition) and self.prepared is None
                results = checked_results(partition, runs.make(run) if makes_thread else run())
                seconds.append(perf_counter() - start)
                values |= zip(partition.outputs, results, strict=True)
        given = {tensor for tensor, _ in self.artifact.inputs}
        for variable in self.artifact.passed:
            if variable.after is not None:
                array = values[variable.after] if variable.constant is None else variable.constant
                value = array.copy() if variable.after in given else array
                self._variables.value(variable.key, variable.info).take(value)
        return values, seconds

    def hold(self, states: Sequence[HeldState] | None, variables: VariableValues) -> None:
        """Let the next runs have these values of the states that callers hold, and of the model's variables.

        Args:
            states: In the order of ``Artifact.bound``; None for values of this instance.
            variables: Of the opened model.

        Raises:
            DeviceError: Memory runs out.
        """
        self._variables, self._has_own_variables = variables, False
        self._hold(states)

    def _hold(self, states: Sequence[HeldState] | None) -> None:
        """:meth:`hold` with the values of variables that there are."""
        variables = self._variables
        if states is None and variables.in_place_for is self._in_place:
            return
        if states is None and self._own_states is None:
            bound = (form for form in self.artifact.bound if not form.variable)
            self._own_states = [HeldState(form, self._session) for form in bound]
        given = iter((self._own_states or ()) if states is None else states)
        variables.initialize(self.artifact.first)
        for shared in self._in_litert:
            shared.keeper = variables.keeper()
        for executor, forms in self._holding:
            executor.hold(
                [
                    variables.value(form.variable, form.input).on_device(form, self._session)
                    if form.variable
                    else next(given)
                    for form in forms
                ]
            )
        variables.in_place_for = self._in_place if states is None else None

    def reset_state(self) -> None:
        """Set every variable to its initial value, but for those that callers gave."""
        for state in self._own_states or ():
            state.clear()
        if self._has_own_variables and self.holds:
            self._variables.reset()
            self._hold(None)
        self._settle()
        for engine in self._engines:
            engine.reset_state()

    def profile(self, inputs: Sequence[Value], runs: int) -> Timed:
        """Return times of several inferences on the device, and of one on the CPU. The state changes as by one run.

        Args:
            inputs: Values of the model's inputs in order.
            runs: Number of inferences on the device.
        """
        self._settle()
        values, seconds = self._run_partitions(inputs)
        found: list[tuple[DevicePartition, list[LaunchTime] | None]] = []
        for partition, engine in self._partitions():
            given = [values[t] for t in partition.inputs]
            if isinstance(engine, PieceEngine):
                found += zip(pieces_of(partition), engine.profile(given, runs), strict=True)
            elif isinstance(engine, Executor):
                found += zip(pieces_of(partition), [engine.profile(given, runs)], strict=True)
        on_cpu = [isinstance(partition, CpuPartition) for partition in self.artifact.partitions]
        return found, [each for each, is_cpu in zip(seconds, on_cpu, strict=True) if is_cpu]

    def _settle(self) -> None:
        for runs in self._runs:
            runs.settle()

    def _executors(self) -> list[Executor]:
        return [executor for engine in self._engines for executor in _executors_of(engine)]

    def _partitions(self) -> Iterator[tuple[CompiledPartition, Engine]]:
        return zip(self.artifact.partitions, self._engines, strict=True)


def _work(partition: CompiledPartition) -> int:
    return sum(launch.work for piece in pieces_of(partition) for launch in piece.executable.launches)


def _executors_of(engine: Engine) -> tuple[Executor, ...]:
    if isinstance(engine, PieceEngine):
        return engine.executors
    return (engine,) if isinstance(engine, Executor) else ()


def _alone(results: Sequence[Array], inputs: Sequence[Value]) -> list[Array]:
    """Results with memory of their own: an output may be an input of the model, or a tensor that is one already."""
    taken, alone = [each for each in inputs if isinstance(each, np.ndarray)], list[Array]()
    for array in results:
        alone.append(array.copy() if any(np.may_share_memory(array, each) for each in taken) else array)
        taken.append(array)
    return alone


def _check_shape(what: str, planned: Shape, computed: Shape) -> None:
    """Raise ValueError where the CPU gave another shape than there is room for on the device."""
    if computed != planned:
        raise ValueError(f"{what} has shape {list(computed)} in this run; {list(planned)} was expected")


def checked_results(partition: CompiledPartition, results: list[Array]) -> list[Array]:
    """Return the results of the partition as they are meant: trimmed, without checks and sizes.

    Args:
        partition: Says which results are checks and sizes.
        results: All results of the executable.

    Raises:
        ValueError: The checks found faults; the message has all.
    """
    if not isinstance(partition, DevicePartition) or not (partition.checks or partition.trims):
        return results
    sizes = len(results) - len({trim.size for trim in partition.trims})
    split = sizes - len(partition.checks)
    if faults := [fault for fault, found in zip(partition.checks, results[split:sizes], strict=True) if found.any()]:
        raise ValueError("; ".join(faults))
    return trimmed(results[:split], partition.trims, results[sizes:]) if partition.trims else results[:split]


def open_executor(partition: DevicePartition, program: Any, session: Session) -> Executor:
    """Return the executor that the partition was compiled for.

    Args:
        partition: The piece.
        program: Has the piece's kernels.
        session: The device.

    Raises:
        DeviceError: Memory runs out.
    """
    executable = partition.executable
    if executable.claiming:
        return ClaimingExecutor(executable, executable.claiming, program, session)
    if executable.persistent:
        from tflgpu.runtime.executors.persistent_executor import PersistentExecutor  # only where it is chosen

        return PersistentExecutor(executable, program, session)
    from tflgpu.runtime.executors.launch_executor import LaunchExecutor

    return LaunchExecutor(executable, program, session)
