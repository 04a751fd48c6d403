"""Engines that run a partition: the device, LiteRT on the CPU, or the device in a loop or a branch of the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from tflgpu.artifact.artifact import (
    BranchPartition,
    CompiledPartition,
    LoopPartition,
    PartedLoopPartition,
    pieces_of,
)
from tflgpu.artifact.executable import Array
from tflgpu.model.run_time_numbers import trip_count
from tflgpu.model.tensor_info import TensorIndex
from tflgpu.runtime.executors.executor import Executor, LaunchTime

# Iterations that are enqueued before the host waits for the device: an interrupt need not wait longer, and drivers keep
# what is not done yet in memory.
AHEAD = 64

Values = dict[TensorIndex, Array]  # of tensors of the file


P = TypeVar("P", bound=LoopPartition | BranchPartition | PartedLoopPartition)


class PieceEngine(ABC, Generic[P]):
    """Runs a partition of several pieces. Not thread-safe: the caller serializes the calls."""

    def __init__(self, partition: P, executors: Sequence[Executor]) -> None:
        """executors: of the partition's pieces."""
        self._partition, self._pieces = partition, pieces_of(partition)
        self.executors = tuple(executors)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the partition once.

        Args:
            inputs: Arrays in the order of the partition's inputs.

        Returns:
            New arrays in the order of its outputs.

        Raises:
            ValueError: An array has a shape that was not planned.
            DeviceError: The device fails.
        """
        values = dict(zip(self._partition.inputs, inputs, strict=True))
        return self._run(values)

    def profile(self, inputs: Sequence[Array], runs: int) -> list[list[LaunchTime] | None]:
        """Return when the launches of each piece began and ended; None for a piece that the run does not need.

        The launches of a loop's body are timed in one iteration.

        Args:
            inputs: Arrays in the order of the partition's inputs.
            runs: Number of inferences.
        """
        values = dict(zip(self._partition.inputs, inputs, strict=True))
        return [
            executor.profile([values[t] for t in piece.inputs], runs) if self._needs(executor, values) else None
            for piece, executor in zip(self._pieces, self.executors, strict=True)
        ]

    def reset_state(self) -> None:
        """Forget what the last run left, which the next one does not read anyway."""
        for executor in self.executors:
            executor.reset_state()

    @abstractmethod
    def _run(self, values: Values) -> list[Array]:
        """:meth:`run` on values by tensor."""

    def _needs(self, executor: Executor, values: Values) -> bool:
        """Whether a run on these values uses one of the executors."""
        return True


class LoopEngine(PieceEngine[LoopPartition]):
    """Runs a WHILE: the body again and again, until a count that is known or the condition, read each time, ends it."""

    def _run(self, values: Values) -> list[Array]:
        body, partition = self.executors[0], self._partition
        body.reset_state()
        for state in partition.states:
            if state.start is not None:
                body.set_state(state.binding, values[state.start])
        body.write([values[t] for t in self._pieces[0].inputs])
        for _ in self._iterations(body, values):
            body.step()
        body.results()
        found = dict(partition.known)
        found |= {result: values[source] for result, source in partition.passed}
        found |= {s.result: body.state(s.binding) for s in partition.states if s.result in partition.outputs}
        return [found[t] for t in partition.outputs]

    def _iterations(self, body: Executor, values: Values) -> Iterator[None]:
        """One item for each iteration; each is to be enqueued before the next item is asked for."""
        if self._partition.bounds:
            for number in range(trip_count(self._partition.bounds, values)):
                if number % AHEAD == AHEAD - 1:
                    body.session.queue.finish()
                yield
            return
        condition, test = self._pieces[1], self.executors[1]
        (again,) = test.run([values[t] for t in condition.inputs])
        while again:
            yield
            (again,) = body.results()


class BranchEngine(PieceEngine[BranchPartition]):
    """Runs an IF: the piece that its condition chooses."""

    def _run(self, values: Values) -> list[Array]:
        number = self._chosen(values)
        piece = self._pieces[number]
        results = self.executors[number].run([values[t] for t in piece.inputs])
        found = dict(zip(piece.outputs, results, strict=True))
        return [found[t] for t in self._partition.outputs]

    def _needs(self, executor: Executor, values: Values) -> bool:
        return executor is self.executors[self._chosen(values)]

    def _chosen(self, values: Values) -> int:
        return 0 if values[self._partition.decision].reshape(-1)[0] else 1


class PartedLoopEngine(PieceEngine[PartedLoopPartition]):
    """Runs a WHILE of several parts: condition and body again and again, with the state on the host between them."""

    def __init__(self, partition: PartedLoopPartition, executors: Sequence[Executor]) -> None:
        super().__init__(partition, executors)
        self._parts: list[Executor | PieceEngine[Any]] = []
        at = 1
        for part in partition.body:
            end = at + len(pieces_of(part))
            self._parts.append(engine_of(part, executors[at:end]))
            at = end

    def profile(self, inputs: Sequence[Array], runs: int) -> list[list[LaunchTime] | None]:
        """Return the times of the condition and of one iteration, with the first values of the state.

        Args:
            inputs: Arrays in the order of the partition's inputs.
            runs: Number of inferences.
        """
        values = self._first(dict(zip(self._partition.inputs, inputs, strict=True)))
        found: list[list[LaunchTime] | None] = [self.executors[0].profile(self._tested(values), runs)]
        for part, engine in zip(self._partition.body, self._parts, strict=True):
            given = [values[t] for t in part.inputs]
            found += engine.profile(given, runs) if isinstance(engine, PieceEngine) else [engine.profile(given, runs)]
            values |= zip(part.outputs, engine.run(given), strict=True)
        return found

    def _first(self, values: Values) -> Values:
        """Return the first values of the state."""
        partition = self._partition
        starts = zip(partition.state, partition.starts, strict=True)
        return {t: values[start] for t, start in starts if start is not None} | dict(partition.known)

    def _tested(self, values: Values) -> list[Array]:
        return [values[t] for t in self._partition.condition.inputs]

    def _run(self, values: Values) -> list[Array]:
        partition, test = self._partition, self.executors[0]
        values = self._first(values)
        while test.run(self._tested(values))[0]:
            for part, engine in zip(partition.body, self._parts, strict=True):
                values |= zip(part.outputs, engine.run([values[t] for t in part.inputs]), strict=True)
            values = {t: values[after] for t, after in zip(partition.state, partition.following, strict=True)}
        found = {result: values[t] for result, t in zip(partition.results, partition.state, strict=True)}
        return [found[t] for t in partition.outputs]


def engine_of(partition: CompiledPartition, executors: Sequence[Executor]) -> Executor | PieceEngine[Any]:
    """Return the engine or the executor that runs a partition on the device.

    Args:
        partition: A loop, a branch or a plain piece.
        executors: Those of its pieces, in their order.
    """
    match partition:
        case LoopPartition():
            return LoopEngine(partition, executors)
        case BranchPartition():
            return BranchEngine(partition, executors)
        case PartedLoopPartition():
            return PartedLoopEngine(partition, executors)
    return executors[0]
