"""The cold path: the bytes of a .tflite file -> everything that running it takes, as data.

Needs no device, only its :class:`Target`. A warm start imports nothing of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tflgpu.artifact.artifact import (
    Artifact,
    BoundState,
    BranchPartition,
    CompiledPartition,
    CpuPartition,
    DevicePartition,
    LoopPartition,
    LoopState,
    PartedLoopPartition,
)
from tflgpu.artifact.executable import Executable, SharedConstants
from tflgpu.codegen.link import link, state_bindings
from tflgpu.codegen.render import KernelSource, check_graph_size, check_program_size, render
from tflgpu.codegen.whole_kernels import assemble
from tflgpu.fallback.cpu_engine import prepare
from tflgpu.fallback.guarded_process import GuardedProcess
from tflgpu.fallback.guarded_requests import litert_shapes
from tflgpu.fallback.submodel import cpu_partition
from tflgpu.frontend.control_flow.pieces import Branch, Call, Loop, LoweredPiece, PartedLoop
from tflgpu.frontend.frontend import Frontend, lower_model, variable_info
from tflgpu.frontend.partition import Partition
from tflgpu.graph.ir import Graph
from tflgpu.kernels.request import Chooser, first_ranked
from tflgpu.model.model import Model
from tflgpu.model.reader import read_model
from tflgpu.options import Options
from tflgpu.passes import optimize
from tflgpu.passes.device.storage import add_conversions
from tflgpu.plan import Plan, make_plan
from tflgpu.plan.planning import clear_choice
from tflgpu.report.describe import make_report
from tflgpu.report.half_precision import MixedPrecision
from tflgpu.report.profile import Stopwatch
from tflgpu.report.report import Report
from tflgpu.target import Target

LOGGER = logging.getLogger(__name__)

# Measures kernels of a graph on the device that the target describes, and chooses their parameters accordingly.
Tuner = Callable[[Graph, Target], Chooser]

Graphs = dict[Partition, tuple[Graph, ...]]  # of all partitions; the CPU's have none

Plans = dict[Partition, tuple[Plan, ...]]


@dataclass(frozen=True)
class Parts:
    """A lowered model, cut into partitions.

    pieces: what the device runs of each partition. graphs: of the pieces, optimized. mixed: how their storage was
    chosen, if it was.
    """

    data: bytes
    frontend: Frontend
    partitions: tuple[Partition, ...]
    pieces: Mapping[Partition, tuple[LoweredPiece, ...]]
    graphs: Graphs
    mixed: MixedPrecision | None = None

    def artifact(self, plans: Plans, shared: Sequence[SharedConstants] = ()) -> Artifact:
        """Return the model, with a plan for each of the graphs.

        Args:
            plans: For each partition on the device, the plans of its graphs, in their order.
            shared: Constants that the device has already, from another signature of the file.

        Raises:
            UnsupportedError: The program is too large for a compiler.
        """
        compiled: list[CompiledPartition] = []
        frontend, partitions = self.frontend, self.partitions
        LOGGER.info("generating the source of %d kernels", sum(len(p.kernels) for each in plans.values() for p in each))
        sources: dict[Partition, list[KernelSource]] = {p: list(map(render, each)) for p, each in plans.items()}
        check_program_size([source for each in sources.values() for source in each])
        for partition in partitions:
            if partition.on_device:
                parts = zip(self.pieces[partition], plans[partition], sources[partition], strict=True)
                each = [_compiled(*part, shared) for part in parts]
                compiled.append(device_partition(partition, frontend.call(partition), each, plans[partition]))
            else:
                compiled.append(cpu_partition(self.data, frontend, partition))
        report: Report = replace(_report(frontend, partitions, plans), mixed=self.mixed)
        known_as = frontend.entry.signature, frontend.signatures()
        bound = tuple(_bound_states(frontend, partitions, plans, compiled))
        variables = frontend.variables_between(partitions)
        return Artifact(*frontend.interface(), tuple(compiled), report, *known_as, bound, *variables)


def _bound_states(
    frontend: Frontend, partitions: Sequence[Partition], plans: Plans, compiled: Sequence[CompiledPartition]
) -> Iterator[BoundState]:
    """Where the states lie that callers or the model's variables hold, of all partitions."""
    for number, (partition, made) in enumerate(zip(partitions, compiled, strict=True)):
        if not isinstance(made, DevicePartition):
            continue
        executable, plan = made.executable, plans[partition][0]
        states = zip(executable.states, state_bindings(plan, executable), strict=True)
        held = [(binding, executable.buffers[state.buffer].bytes) for state, binding in states if state.held]
        named = [(output, info, "") for output, info in frontend.bound_interface()]
        named += [("", variable_info(use), use.key) for use in partition.held]
        for (output, info, variable), (binding, size) in zip(named, held, strict=True):
            yield BoundState(output, info, replace(binding, buffer=0), size, variable, number)


# Marks the tensors of the graphs that are to stay in float, by running the model on the target's device; the target is
# another one, in fp32, where all are to.
Calibrator = Callable[[Parts, Target], tuple[Parts, Target]]


def compile_model(
    data: bytes,
    options: Options,
    target: Target,
    clock: Stopwatch | None = None,
    tuner: Tuner | None = None,
    calibrator: Calibrator | None = None,
    shared: Sequence[SharedConstants] = (),
    lowered: Callable[[Frontend], None] | None = None,
) -> tuple[Artifact, ...]:
    """Return the whole road but the device's own compiler: an artifact for each executor that may be the fastest.

    Args:
        data: The bytes of the file.
        options: Which part of the file to compile, and how.
        target: The facts of the device by which kernels are planned.
        clock: Takes the time of each stage.
        tuner: Chooses the parameters of kernels; by default their cost model does.
        calibrator: Chooses the storage of tensors; by default all have the target's.
        shared: Constants of other signatures of the file that the device has.
        lowered: Is told of a model that can run, before it is planned.

    Returns:
        Two artifacts where only measuring can tell which is faster, one otherwise, as for a target that names its
        executor.

    Raises:
        ModelError: The model is damaged.
        UnsupportedError: An operator has nowhere to run; it has every reason.
        ValueError: The options do not fit the model.
    """
    clock = clock or Stopwatch()
    with GuardedProcess(options.cpu_part.trial_timeout) as process:
        LOGGER.info("reading the model")
        model: Model = read_model(data)
        frontend: Frontend = lower_model(model, options, litert_shapes(data, process), target.missing_types)
        partitions: tuple[Partition, ...] = frontend.partitions()
        if lowered is not None:
            lowered(frontend)
        pieces = {p: frontend.pieces(p) for p in partitions}
        LOGGER.info("planning kernels for %d operators", len(frontend.lowered.entries))
        graphs: Graphs = {p: tuple(optimize(piece.graph) for piece in pieces[p]) for p in partitions}
        check_graph_size([graph for each in graphs.values() for graph in each])
        parts = Parts(data, frontend, partitions, pieces, graphs)
        if calibrator is not None:
            clock.lap("plan")
            parts, target = calibrator(parts, target)
            clock.lap("calibrate")
        artifacts: list[Artifact] = []
        for plans in _plans_by_executor(parts.graphs, target, clock, tuner):
            artifacts.append(parts.artifact(plans, shared))
            clock.lap("render")
        for partition in artifacts[0].partitions:  # those for the CPU are the same in every artifact
            if isinstance(partition, CpuPartition):
                LOGGER.info("LiteRT prepares %d operators for the CPU", len(partition.operators))
                prepare(partition, artifacts[0], process)
                clock.lap("interpreter")
    return tuple(artifacts)


def compile_piece(piece: LoweredPiece, plan: Plan) -> DevicePartition:
    """Return what the device runs of a piece, with a launch for each kernel, whatever the plan's executor.

    Args:
        piece: A graph, and what is bound to its inputs and outputs.
        plan: The plan of that graph, perhaps of a changed one with the same inputs and outputs.
    """
    source = render(plan)
    linked = link(plan, source.names, piece.output_types)
    return DevicePartition(piece.inputs, piece.outputs, source.text, linked, piece.checks, piece.trims)


def _compiled(
    piece: LoweredPiece, plan: Plan, source: KernelSource, shared: Sequence[SharedConstants] = ()
) -> DevicePartition:
    linked: Executable = link(plan, source.names, piece.output_types, shared)
    text, executable = assemble(source, linked, plan.target)
    return DevicePartition(piece.inputs, piece.outputs, text, executable, piece.checks, piece.trims)


def device_partition(
    partition: Partition, call: Call | None, compiled: Sequence[DevicePartition], plans: Sequence[Plan]
) -> CompiledPartition:
    """Return a partition on the device, made of its compiled pieces.

    Args:
        partition: The operators, with the tensors that go in and out.
        call: The loop or branch that the partition is; None if it is neither.
        compiled: The body of a loop and perhaps its condition, the branches of an IF, or one piece.
        plans: The plan of each piece.
    """
    sides = partition.inputs, partition.outputs
    match call:
        case Loop():
            return LoopPartition(
                *sides,
                compiled[0],
                compiled[1] if len(compiled) > 1 else None,
                call.bounds,
                tuple(map(LoopState, state_bindings(plans[0], compiled[0].executable), call.starts, call.results)),
                tuple(call.passed.items()),
                tuple((constant.tensor, constant.value) for constant in call.known),
            )
        case Branch():
            return BranchPartition(*sides, call.condition, *compiled)
        case PartedLoop():
            body, at = list[CompiledPartition](), 1
            for part in call.body:
                end = at + len(part.pieces)
                body.append(device_partition(part.partition, part.call, compiled[at:end], plans[at:end]))
                at = end
            known = tuple((constant.tensor, constant.value) for constant in call.known)
            state = call.state, call.following
            return PartedLoopPartition(*sides, compiled[0], tuple(body), *state, call.starts, call.results, known)
    return compiled[0]


def _plans_by_executor(graphs: Graphs, target: Target, clock: Stopwatch, tuner: Tuner | None) -> Iterator[Plans]:
    """Plans of all graphs for each executor that may be the fastest, the likeliest first."""
    if target.executor != "auto":
        yield make_plans(graphs, target, clock, tuner)
        return
    persistent, launch = replace(target, executor="persistent"), replace(target, executor="launch")
    untuned = make_plans(graphs, persistent, clock)
    choice = clear_choice([plan for each in untuned.values() for plan in each])
    if choice != "launch":
        yield make_plans(graphs, persistent, clock, tuner) if tuner else untuned
    if choice != "persistent":
        yield make_plans(graphs, launch, clock, tuner)


def make_plans(graphs: Graphs, target: Target, clock: Stopwatch, tuner: Tuner | None = None) -> Plans:
    """Return the plans of all graphs.

    Args:
        graphs: For each partition on the device, its graphs.
        target: The device to plan for.
        clock: Takes the time of planning and of tuning.
        tuner: Chooses the parameters of kernels by measurements; None for the cost model.
    """
    clock.lap("plan")
    choosers = {p: [tuner(g, target) if tuner else first_ranked for g in each] for p, each in graphs.items()}
    if tuner:
        clock.lap("tune")
    plans = {
        p: tuple(make_plan(g, target, chooser) for g, chooser in zip(each, choosers[p], strict=True))
        for p, each in graphs.items()
    }
    clock.lap("plan")
    return plans


def _report(frontend: Frontend, partitions: Sequence[Partition], plans: Plans) -> Report:
    each = [plan for partition in partitions for plan in plans[partition]]
    return make_report(frontend, partitions, [plan.graph for plan in each], each)


def lower_file(data: bytes, options: Options, missing_types: tuple[str, ...] = ()) -> Frontend:
    """Read a model and lower it as a whole.

    Args:
        data: The .tflite file.
        options: The caller's choices.
        missing_types: Element types that the device does not compute with.

    Raises:
        ModelError: The model is damaged.
        ValueError: The options do not fit it.
    """
    with GuardedProcess(options.cpu_part.trial_timeout) as process:
        return lower_model(read_model(data), options, litert_shapes(data, process), missing_types)


def inspect_model(data: bytes, options: Options, target: Target | None = None) -> Report:
    """Return what a model is, what of it can run on a device, and why not the rest.

    Args:
        data: The bytes of the file.
        options: Which part of the file to inspect, and how it would be compiled.
        target: A device for which to plan kernels, too; None for a report without kernels.

    Raises:
        ModelError: The model is damaged.
        ValueError: The options do not fit the model.
    """
    frontend = lower_file(data, options, target.missing_types if target else ())
    partitions = frontend.cut()
    graphs: Graphs = {p: tuple(optimize(piece.graph) for piece in frontend.pieces(p)) for p in partitions}
    if target is None:
        each = [add_conversions(graph) for graphs_of in graphs.values() for graph in graphs_of]
        return make_report(frontend, partitions, each)
    plans = {p: tuple(make_plan(graph, target) for graph in graphs_of) for p, graphs_of in graphs.items()}
    return _report(frontend, partitions, plans)
