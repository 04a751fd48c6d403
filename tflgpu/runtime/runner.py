"""Runs a model for callers in any thread: its instances by input shapes, one lock, and the checks of arguments.

A signal handler, or a ``__del__`` that the garbage collector calls, may call the model in the middle of another call by
the same thread, between any two instructions of Python. It cannot wait for that call. So it has instances of its own,
and leaves those alone that the other call is in the middle of.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from threading import get_ident
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.runtime.device_memory import DeviceMemory, Value
from tflgpu.runtime.executors.buffers import HeldState
from tflgpu.runtime.input_check import InputCheck, Inputs, LastCall, Outputs, Targets, check_outputs
from tflgpu.runtime.instance import Instance, Timed
from tflgpu.runtime.model_variables import ModelVariables
from tflgpu.runtime.opencl import process
from tflgpu.runtime.opencl.process import inside, is_orphan
from tflgpu.runtime.opencl.session import DeviceFailures, Session
from tflgpu.runtime.submission import Announcer, Submission


class RowPieces:
    """Runs of a compiled model for another number of rows, until they have taken as long as compiling takes.

    From then on a program for these rows is worthwhile. So this takes at most twice the time that it would take if the
    future were known, and a batch that comes once, such as the last one of a data set, is not compiled for.
    """

    def __init__(self, run: Callable[[Sequence[Array]], dict[str, Array]], rows: int, seconds: float) -> None:
        """run: the compiled model. rows: that it takes. seconds: that compiling it took."""
        self._run, self._size, self._seconds_left = run, rows, seconds

    @property
    def is_worthwhile(self) -> bool:
        """Whether to compile would be slower."""
        return self._seconds_left > 0

    def run(self, inputs: Sequence[Array]) -> dict[str, Array]:
        """Run rows piece by piece, and return the outputs by name. The last piece is filled up with its last row.

        Args:
            inputs: Arrays whose first axis counts rows.
        """
        begun = perf_counter()
        rows, size = len(inputs[0]), self._size
        places = [np.minimum(np.arange(first, first + size), rows - 1) for first in range(0, rows, size)]
        results = [self._run([array[place] for array in inputs]) for place in places]
        joined = {name: np.concatenate([each[name] for each in results])[:rows] for name in results[0]}
        self._seconds_left -= perf_counter() - begun
        return joined


# Plans that a model with free dimensions keeps, one for each set of input shapes that it was run with lately.
MAX_INSTANCES = 4

# Inferences of run_many that are on their way: one is copied in, one is computed, one is copied out and read.
AHEAD = 3

Shapes = tuple[Shape, ...]


class RowSizes(NamedTuple):
    """Facts about numbers of rows that a model was not compiled for.

    known: an instance for inputs of these shapes, if none has to be compiled for it. are_independent: whether a batch
    of the second shapes can be computed by runs of the first ones. seconds: that compiling took.
    """

    known: Callable[[Shapes], Instance | None]
    are_independent: Callable[[Shapes, Shapes], bool]
    seconds: float


States = Sequence[HeldState] | None  # None for those of the instance

Instances = OrderedDict[Shapes, Instance]


class Runner:
    """Runs the instances of one model."""

    def __init__(
        self,
        infos: Sequence[TensorInfo],
        session: Session,
        first: Instance,
        make: Callable[[Shapes], Instance],
        variables: ModelVariables,
        rows: RowSizes,
    ) -> None:
        """infos: of the inputs. make: an instance for inputs of these shapes. first: the one for those of ``infos``.

        variables: of the opened model. rows: what tells of numbers of rows that are not compiled.
        """
        self._infos, self.session, self._make = infos, session, make
        self._inputs, self._last = InputCheck(infos, session), LastCall(session.queue)
        self._failures = DeviceFailures(session.device, "running the model")
        self._variables = variables
        self._lock = variables.lock if first.artifact.has_variables else threading.RLock()
        self._announcer = Announcer()
        self._depth = 0  # calls that the thread with the lock is in the middle of
        self._late_resets: set[int] = set()  # depths of calls after which the state is to be reset
        self._shapes = tuple(info.shape for info in infos)
        self._is_fixed = not any(info.free_axes for info in infos)
        # A CPU computes and copies with the same cores, and the queue costs it more than it gains.
        self.ahead = 1 if session.device.type == "cpu" else AHEAD
        self._instances: dict[int, Instances] = {0: OrderedDict([(self._shapes, first)])}  # by depth; none if closed
        # For every call with the shapes of the file that interrupts no other; None if closed, or if it is not alone.
        self._only: Instance | None = first
        self._prepared = first.prepared  # of ``_only``
        self._rows = rows
        self._pieces: OrderedDict[Shapes, RowPieces] = OrderedDict()  # for shapes that are not compiled

    @property
    def instances(self) -> Instances:
        """Instances for calls that interrupt no other, the one unused for longest first."""
        return self._instances.get(0, OrderedDict())

    def run(self, inputs: Inputs, outputs: Outputs | None, states: States = None) -> dict[str, Array]:
        """Return outputs by name, as arrays of the host unless the caller gives others.

        Args:
            inputs: A caller's.
            outputs: A caller's arrays by name; None for new ones.
            states: Values of the states that callers hold, if the model has any.
        """
        fitting = None if outputs else self._inputs.fitting(inputs)
        if fitting is None or self._prepared is None:
            return self._run(inputs, fitting, outputs, states)
        # The same in as few operations as possible: ``self._failures`` is written out, whose methods are two calls.
        inside.append(get_ident())
        if process.is_restricted:
            process.check()
        try:
            with self._lock:
                prepared = self._prepared
                if prepared is None or self._depth:
                    return self._run(inputs, fitting, outputs, states)
                self._depth = 1
                try:
                    return prepared(fitting)
                finally:
                    self._depth = 0
                    if self._late_resets:
                        self._reset_late(0)
        except cl.Error as error:
            raise self._failures.named(error) from error
        finally:
            inside.remove(get_ident())

    def _run(
        self, inputs: Inputs, fitting: list[Array] | None, outputs: Outputs | None, states: States
    ) -> dict[str, Array]:
        """:meth:`run` of any model, for any inputs."""
        with self._failures:
            known = self._last.again(inputs, outputs) if fitting is None else None
            values = fitting or (self._inputs.values(inputs) if known is None else known.values)
            as_in_file = self._is_fixed or fitting is not None
            with self._lock:  # as in _turn, in as few operations as possible
                depth = self._depth
                self._depth = depth + 1
                try:
                    instance = self._only if as_in_file and not depth else None
                    if instance is None:
                        if not (as_in_file or depth or outputs or states) and (pieces := self._in_pieces(values)):
                            return pieces.run([value for value in values if isinstance(value, np.ndarray)])
                        instance = self._instance(values, depth)
                    if fitting is not None:
                        targets = instance.to_host
                    else:
                        targets = self._targets(instance, values, inputs, outputs) if known is None else known.targets
                    if instance.holds:
                        with self._variables.lock, self._variables as variables:
                            instance.hold(states, variables)
                            arrays = instance.run(values, targets.places)
                    else:
                        arrays = instance.run(values, targets.places)
                finally:
                    self._depth = depth
                    if self._late_resets:
                        self._reset_late(depth)
            return targets.delivered(arrays)

    def enqueue(self, inputs: Inputs, outputs: Outputs | None, states: States = None) -> Submission:
        """Start a run, and return at once.

        Args:
            inputs: A caller's.
            outputs: A caller's arrays by name; None for new ones.
            states: Values of the states that callers hold, if the model has any.
        """
        with self._failures:
            known = self._last.again(inputs, outputs)
            values = self._inputs.values(inputs) if known is None else known.values
            with self._turn() as depth:
                instance = self._instance(values, depth)
                targets = self._targets(instance, values, inputs, outputs) if known is None else known.targets
                if instance.holds:
                    with self._variables.lock, self._variables as variables:
                        instance.hold(states, variables)
                        flight = instance.enqueue(values, targets.places)
                else:
                    flight = instance.enqueue(values, targets.places)
            return Submission(instance, flight, targets, self._lock, self._failures, self._announcer)

    def run_many(self, many: Iterable[Inputs]) -> Iterator[dict[str, Array]]:
        """Yield the outputs of many runs in their order, of which some are under way at a time.

        Args:
            many: A caller's inputs of each run; they are taken as runs begin.
        """
        if self.ahead == 1:
            yield from (self.run(inputs, None) for inputs in many)
            return
        waiting = deque[Submission | Exception]()
        for submission in self._submissions(many):
            waiting.append(submission)
            if len(waiting) == self.ahead:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())

    def _submissions(self, many: Iterable[Inputs]) -> Iterator[Submission | Exception]:
        """Yield an exception in place of what could not be enqueued, and nothing after it."""
        try:
            for inputs in many:
                yield self.enqueue(inputs, None)
        except Exception as error:
            yield error

    def profile(self, inputs: Inputs, runs: int) -> Timed:
        """Return times of the kernels of some runs.

        Args:
            inputs: A caller's.
            runs: Number of inferences.
        """
        with self._failures:
            values = self._inputs.values(inputs)
            with self._turn() as depth:
                instance = self._instance(values, depth)
                with self._variables.lock, self._variables as variables:
                    if instance.holds:
                        instance.hold(None, variables)
                    return instance.profile(values, runs)

    def pinned_array(self, name: str) -> Array:
        """Return an array in pinned memory for an input.

        Args:
            name: The input's.

        Raises:
            ValueError: The model has no such input.
        """
        from tflgpu.runtime.pinned_memory import pinned_array  # where there are any

        info = self._info(name)
        with self._failures:
            return pinned_array(self.session, info.shape, info.dtype)

    def device_buffer(self, name: str) -> cl.Buffer:
        """Return a new buffer on the device for an input.

        Args:
            name: The input's.

        Raises:
            ValueError: The model has no such input.
        """
        info = self._info(name)
        size = prod(info.shape) * np.dtype(info.dtype).itemsize
        with self._failures:
            return cl.Buffer(self.session.context, cl.mem_flags.READ_WRITE, size)

    def _info(self, name: str) -> TensorInfo:
        """Return the description of an input. Raises ValueError for an unknown name."""
        for info in self._infos:
            if info.name == name:
                return info
        raise ValueError(f"the model has no input {name!r}; it has {[info.name for info in self._infos]}")

    def reset_state(self, *, of_model: bool = True) -> None:
        """Reset the states; of instances that a call of this thread is in the middle of, when that is over.

        Args:
            of_model: Whether to reset the variables of the opened model, too.
        """
        with self._failures, self._turn() as depth:
            self._check_open()
            if of_model:
                self._variables.reset()
            self._late_resets.update(range(depth))
            for number in list(self._instances):
                if number >= depth:
                    self._reset(number)

    def replace(self, first: Instance, seconds: float) -> bool:
        """Let the calls after the current one run another instance; variables of the opened model stay as they are.

        Args:
            first: The instance for the shapes of the file.
            seconds: That compiling it took.

        Returns:
            Whether the model is open.
        """
        with self._lock:
            if not self._instances:
                return False
            self._instances.clear()
            self._instances[0] = OrderedDict([(self._shapes, first)])
            self._only, self._prepared = first, first.prepared
            self._rows = self._rows._replace(seconds=seconds)
            self._pieces.clear()
            self._last.forget()
        return True

    def close(self) -> None:
        """Close the model. A call of this thread that is in the middle goes on; its instance is free when it is
        over."""
        if is_orphan():  # what there is, the lock included, is the parent's
            return
        with self._lock:
            self._instances.clear()
            self._pieces.clear()
            self._only = self._prepared = None
            self._last.forget()

    @contextmanager
    def _turn(self) -> Iterator[int]:
        """Hold the lock. Gives the number of calls that this thread is in the middle of."""
        with self._lock:
            depth = self._depth
            self._depth = depth + 1
            try:
                yield depth
            finally:
                self._depth = depth
                if self._late_resets:
                    self._reset_late(depth)

    def _reset_late(self, depth: int) -> None:
        if depth in self._late_resets:
            self._late_resets.discard(depth)
            self._reset(depth)

    def _reset(self, depth: int) -> None:
        for instance in self._instances.get(depth, OrderedDict()).values():
            instance.reset_state()

    def _targets(self, instance: Instance, values: Sequence[Value], inputs: Inputs, outputs: Outputs | None) -> Targets:
        """Return the targets of a call that was not known. Raises TypeError or ValueError for outputs that do not
        fit."""
        if not outputs and not (values and isinstance(values[0], DeviceMemory)):
            return instance.to_host
        places, arrays = check_outputs(outputs or {}, instance.outputs, self.session)
        names = [n for number, n in enumerate(instance.output_names) if number not in places]
        targets = Targets(places, names, arrays)
        self._last.keep(values, targets, inputs, outputs)
        if not self._instances:  # closed by a signal handler
            self._last.forget()
        return targets

    def _instance(self, values: Sequence[Value], depth: int) -> Instance:
        """Return the plan for inputs of these shapes: one that is there, or a new one in place of the longest
        unused."""
        instances = self._instances.get(depth)
        if instances is None:
            self._check_open()
            instances = self._instances[depth] = OrderedDict()
        shapes = self._shapes if self._is_fixed else tuple([v.shape for v in values])
        instance = instances.get(shapes)
        if instance is None:
            instance = instances[shapes] = self._make(shapes)
            if depth == 0:
                self._only = self._prepared = None
            if len(instances) > MAX_INSTANCES:
                instances.popitem(last=False)
        if len(instances) > 1:
            instances.move_to_end(shapes)
        return instance

    def _in_pieces(self, values: Sequence[Value]) -> RowPieces | None:
        """Return what runs another number of rows than was compiled, as long as that is not slower than compiling."""
        shapes, instances = tuple([value.shape for value in values]), self.instances
        if not instances or shapes in instances or not all(isinstance(value, np.ndarray) for value in values):
            return None
        if shapes not in self._pieces:
            former, instance = next(reversed(instances.items()))
            if instance.holds or not _differ_in_rows(former, shapes):
                return None
            if (known := self._rows.known(shapes)) is not None:
                instances[shapes] = known
                self._only = self._prepared = None
                return None
            if not self._rows.are_independent(former, shapes):
                return None
            self._pieces[shapes] = RowPieces(partial(_run_once, instance), former[0][0], self._rows.seconds)
            if len(self._pieces) > MAX_INSTANCES:
                self._pieces.popitem(last=False)
        pieces = self._pieces[shapes]
        if pieces.is_worthwhile:
            return pieces
        del self._pieces[shapes]
        return None

    def _check_open(self) -> None:
        """Raise ValueError if the model is closed."""
        if not self._instances:
            raise ValueError("this model is closed; compile it again")


def _differ_in_rows(one: Shapes, other: Shapes) -> bool:
    """Whether all inputs have a number of rows, which is the same for all of them, and another one in ``other``."""
    sides = [{shape[:1] for shape in shapes} for shapes in (one, other)]
    alike = [shape[1:] for shape in one] == [shape[1:] for shape in other]
    return alike and sides[0] != sides[1] and all(len(side) == 1 and all(next(iter(side))) for side in sides)


def _run_once(instance: Instance, values: Sequence[Value]) -> dict[str, Array]:
    return instance.to_host.delivered(instance.run(values, {}))


def _result(submission: Submission | Exception) -> dict[str, Array]:
    if isinstance(submission, Exception):
        raise submission
    return submission.wait()
