"""A model in float on the device, of which any tensors can be rounded to half: answers of any mixture of both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.artifact import DevicePartition
from tflgpu.artifact.executable import Executable
from tflgpu.compiler import Parts
from tflgpu.graph.ir import Graph, TensorId
from tflgpu.kernels.request import first_ranked
from tflgpu.kernels.rewriting import Planning
from tflgpu.passes.device.grids import keep_whole_numbers
from tflgpu.passes.device.storage import assign_storage, convert_layouts
from tflgpu.plan import Plan, make_plan
from tflgpu.report.profile import Stopwatch
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.program import Program, compile_program, make_kernel
from tflgpu.runtime.opencl.session import Session
from tflgpu.target import HALF_MAX, Target, is_exact_in_half

# The same as to store in half and to load again: templates/access/storage.cl.j2.
KERNEL = """
__kernel void round_to_half(__global float *values, ulong first) {
  const ulong i = first + get_global_id(0);
  const float x = values[i];
  ushort bits;
  vstore_half_rte(isfinite(x) ? clamp(x, -65504.0f, 65504.0f) : x, 0, (__private half *)&bits);
  values[i] = vload_half(0, (__private half *)&bits);
}
"""


@dataclass(frozen=True)
class Halves:
    """Places of a launch that half precision may store.

    floats: elements of its result; 0 if the result stays as it is. constants: arguments by number, each with its bytes
    in float.
    """

    floats: int
    constants: tuple[tuple[int, int], ...]


class RoundingExecutor(LaunchExecutor):
    """Runs launches in float, and rounds to half the results and constants of those that :meth:`round` names."""

    def __init__(self, executable: Executable, program: Program, session: Session, halves: Sequence[Halves]) -> None:
        """Allocate memory, with a rounded copy of the constants.

        Args:
            executable: The launches, planned in float.
            program: The kernels.
            session: The device.
            halves: For each launch, what it can have in half.
        """
        super().__init__(executable, program, session)
        self._halves = halves
        self._results: frozenset[int] = frozenset()
        self._constants: frozenset[int] = frozenset()
        self._rounded_buffers = self._round_constants(executable)
        self._kernel = make_kernel(compile_program(session.context, KERNEL), "round_to_half")

    def round(self, results: Collection[int], constants: Collection[int]) -> None:
        """Choose what is rounded to half in the next runs.

        Args:
            results: Numbers of launches whose results are rounded.
            constants: Numbers of launches that read rounded constants.
        """
        for number in self._constants.symmetric_difference(constants):
            buffers = self._rounded_buffers if number in constants else self._buffers
            kernel, launch = self._launches[number][0], self.executable.launches[number]
            for argument, _ in self._halves[number].constants:
                kernel.set_arg(2 * argument, buffers[launch.arguments[argument].buffer])
        self._results, self._constants = frozenset(results), frozenset(constants)

    def _start(self, ready: Sequence[cl.Event] = ()) -> cl.Event | None:
        queue, last, before = self.session.queue, None, ready or None
        for number, launch in enumerate(self._launches):
            last = cl.enqueue_nd_range_kernel(queue, *launch, wait_for=before)
            before = None
            if number in self._results and self._halves[number].floats:
                buffer, offset = self.executable.launches[number].arguments[0].place
                self._kernel.set_args(self._buffers[buffer], np.uint64(offset // 4))
                last = cl.enqueue_nd_range_kernel(queue, self._kernel, (self._halves[number].floats,), None)
        return last

    def _start_silently(self) -> None:
        self._start()

    def _round_constants(self, executable: Executable) -> list[cl.Buffer]:
        """All buffers; those with constants are replaced by rounded copies."""
        blocks = {n: b.data.copy() for n, b in enumerate(executable.buffers) if b.data is not None}
        for launch, halves in zip(executable.launches, self._halves, strict=True):
            for argument, size in halves.constants:
                buffer, offset = launch.arguments[argument].place
                values = blocks[buffer][offset : offset + size].view(np.float32)
                values[:] = np.clip(values, -HALF_MAX, HALF_MAX).astype(np.float16)
        flags, context = cl.mem_flags, self.session.context
        read = flags.READ_ONLY | flags.COPY_HOST_PTR
        return [
            cl.Buffer(context, read, hostbuf=blocks[n]) if n in blocks else buffer
            for n, buffer in enumerate(self._buffers)
        ]


Array = NDArray[Any]


@dataclass(frozen=True)
class Place:
    """A place that half precision may store: a tensor of one of a model's graphs, or the constants of its node.

    piece: number of the graph in order of execution.
    """

    piece: int
    tensor: TensorId
    constants: bool = False


class Probe:
    """places: what could be stored in half, in order of execution; constants only where that rounds them.

    operators: those that compute each. artifact: what it runs.
    """

    def __init__(self, parts: Parts, target: Target, session: Session, trial_timeout: float | None) -> None:
        """Compile. Raises what :class:`Instance` raises."""
        # Kernels for tensor cores round in other places: what they read, not what is stored.
        halves = replace(target, storage="half", executor="launch", matrix_unit=None)
        floats = replace(halves, storage="float")
        self.places: list[Place] = []
        self.operators: dict[Place, tuple[int, ...]] = {}
        self._joined: list[frozenset[Place]] = []
        self._plans: list[Plan] = []
        self._halves: list[list[Halves]] = []
        self._executors: list[RoundingExecutor] = []
        plans = {p: tuple(self._plan(g, halves, floats) for g in graphs) for p, graphs in parts.graphs.items()}
        self.artifact = parts.artifact(plans)
        self._instance = Instance(self.artifact, session, Stopwatch(), None, trial_timeout, self._open)

    def run(self, inputs: Sequence[Array], kept: frozenset[Place] | None = None) -> list[Array]:
        """Return the outputs in order.

        Args:
            inputs: In order.
            kept: The tensors that stay in float, with those :meth:`together` with them; None for all, and for
                constants.
        """
        for piece, (plan, executor) in enumerate(zip(self._plans, self._executors, strict=True)):
            rounded, constants = set[int](), set[int]()
            if kept is not None:
                precise = {p.tensor for p in kept if p.piece == piece and not p.constants}
                for number, planned in enumerate(plan.kernels):
                    node = planned.node
                    if node.output not in precise:
                        rounded.add(number)
                    touched = (*node.inputs, node.output)
                    exact = any(t in precise or plan.graph[t].precise for t in touched)
                    if not exact and Place(piece, node.output, True) not in kept:
                        constants.add(number)
            executor.round(rounded, constants)
        self._instance.reset_state()
        return self._instance.run(inputs, {})

    def together(self, kept: Iterable[Place]) -> frozenset[Place]:
        """Return these tensors, and those with which they share memory: a concatenation without a kernel and its parts.

        Args:
            kept: Some tensors.
        """
        found, before = frozenset(kept), frozenset[Place]()
        while found != before:
            before = found
            found = found.union(*(joined for joined in self._joined if not joined.isdisjoint(found)))
        return found

    def _plan(self, graph: Graph, halves: Target, floats: Target) -> Plan:
        """Return the plan in float of what the plan in half computes, whole numbers of quantized layers included.

        Nothing is fused: what is within a kernel of a plan in half is stored once a tensor beside it is kept.
        """
        planning = keep_whole_numbers(assign_storage(convert_layouts(Planning(graph, halves))))
        storage = planning.storage
        plan = make_plan(planning.graph, floats, first_ranked, fuse=False)
        in_half = make_plan(graph, halves, fuse=False)
        constants = {
            (k.node.output, a.name)
            for k in in_half.kernels
            for a in k.arguments
            if a.data is not None and a.type == "half" and not is_exact_in_half(a.data)
        }
        piece, found = len(self._plans), list[Halves]()
        eliminated = (n for n in in_half.graph.nodes if n.in_place and n.kind == "concatenate")
        self._joined += (frozenset(Place(piece, t) for t in (*n.inputs, n.output)) for n in eliminated)
        for k in plan.kernels:
            output = k.node.output
            stored = storage.get(output)
            is_half = stored is not None and stored.type == "half" and plan.storage[output].type == "float"
            if is_half:
                self.places.append(Place(piece, output))
                self.operators[self.places[-1]] = k.node.sources
            numbers = tuple(
                (n, a.bytes) for n, a in enumerate(k.arguments) if a.type == "float" and (output, a.name) in constants
            )
            if numbers:
                self.places.append(Place(piece, output, constants=True))
                self.operators[self.places[-1]] = k.node.sources
            floats_of_result = plan.storage[output].content_bytes // 4 if is_half else 0
            found.append(Halves(floats_of_result, numbers))
        self._plans.append(plan)
        self._halves.append(found)
        return plan

    def name(self, place: Place) -> str:
        """Return the name of the tensor in the file; for constants, the name of the weights among them.

        Args:
            place: The tensor, or the constants of the node that computes it.
        """
        graph = self._plans[place.piece].graph
        if place.constants:
            names = (graph[t].name for t in graph.producer[place.tensor].inputs if graph[t].is_constant)
            return next(filter(None, names), "")
        return graph[place.tensor].name

    def _open(self, piece: DevicePartition, program: Any, session: Session) -> RoundingExecutor:
        executor = RoundingExecutor(piece.executable, program, session, self._halves[len(self._executors)])
        self._executors.append(executor)
        return executor
