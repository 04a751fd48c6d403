"""The cold path: the bytes of a .tflite file -> everything that running it takes, as data.

Needs no device, only its :class:`Target`. A warm start imports nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tflgpu.artifact.artifact import Artifact, CompiledPartition, CpuPartition, DevicePartition
from tflgpu.artifact.executable import Executable
from tflgpu.codegen.assemble import assemble
from tflgpu.codegen.link import link
from tflgpu.codegen.program_size import check_program_size
from tflgpu.codegen.render import KernelSource, render
from tflgpu.errors import UnsupportedError
from tflgpu.frontend.frontend import Frontend, lower_model
from tflgpu.frontend.lowered import Lowered
from tflgpu.frontend.partition import Partition
from tflgpu.frontend.submodel import submodel
from tflgpu.graph.ir import Graph
from tflgpu.kernels.request import Chooser, first_ranked
from tflgpu.litert.piece import Piece, refused, try_piece
from tflgpu.litert.trial import RefusedError, Trial
from tflgpu.model.model import Model
from tflgpu.model.reader import read_model
from tflgpu.options import Options
from tflgpu.passes import optimize
from tflgpu.plan import Plan, make_plan
from tflgpu.plan.boundary import add_conversions
from tflgpu.plan.executor_heuristics import clear_choice
from tflgpu.report.describe import make_report
from tflgpu.report.report import Report
from tflgpu.report.stopwatch import Stopwatch
from tflgpu.target import Target

# Measures kernels of a graph on the device that the target describes, and chooses their parameters accordingly.
Tuner = Callable[[Graph, Target], Chooser]

Graphs = dict[Partition, Graph]  # those of the partitions on the device

Plans = dict[Partition, Plan]


def compile_model(
    data: bytes, options: Options, target: Target, clock: Stopwatch | None = None, tuner: Tuner | None = None
) -> tuple[Artifact, ...]:
    """The whole road but the device's own compiler: an artifact for each executor that may be the fastest.

    There are two where only measuring can tell, one otherwise, as for a target that names its executor.
    clock: takes the time of each stage. tuner: what chooses the parameters of kernels; by default their cost model.
    Raises ModelError for a damaged model, UnsupportedError with every reason if an operator has nowhere to run,
    ValueError for options that do not fit the model.
    """
    with Trial(options.cpu_timeout) as trial:
        return _compile(data, options, target, clock or Stopwatch(), tuner, trial)


def _compile(
    data: bytes, options: Options, target: Target, clock: Stopwatch, tuner: Tuner | None, trial: Trial
) -> tuple[Artifact, ...]:
    model: Model = read_model(data)
    frontend: Frontend = lower_model(model, options, data, trial, target.missing_types)
    partitions: tuple[Partition, ...] = frontend.partitions()
    lowered: dict[Partition, Lowered] = {p: frontend.lower_partition(p) for p in partitions if p.on_device}
    graphs: Graphs = {p: optimize(part.graph) for p, part in lowered.items()}
    artifacts: list[Artifact] = []
    for plans in _plans_by_executor(graphs, target, clock, tuner):
        compiled: list[CompiledPartition] = []
        sources: dict[Partition, KernelSource] = {p: render(plan) for p, plan in plans.items()}
        check_program_size(sources.values())
        for partition in partitions:
            if partition.on_device:
                source = sources[partition]
                linked: Executable = link(plans[partition], source.names, lowered[partition].output_types)
                text, executable = assemble(source, linked, plans[partition].target)
                checks = lowered[partition].checks
                compiled.append(DevicePartition(partition.inputs, partition.outputs, text, executable, checks))
            else:
                rest: bytes = submodel(data, frontend.entry.subgraph, partition, frontend.sizes(partition))
                is_open = not frontend.lowered.open.isdisjoint(partition.inputs)
                compiled.append(CpuPartition(partition.inputs, partition.outputs, partition.operators, rest, is_open))
        clock.lap("render")
        report: Report = _report(frontend, partitions, plans)
        artifacts.append(Artifact(*frontend.interface(), tuple(compiled), report))
    _prepare_on_cpu(artifacts[0], trial, clock)
    return tuple(artifacts)


def _prepare_on_cpu(artifact: Artifact, trial: Trial, clock: Stopwatch) -> None:
    """Let LiteRT prepare the partitions for the CPU, which are those of every artifact. Raises UnsupportedError."""
    for partition in artifact.partitions:
        if isinstance(partition, CpuPartition):
            piece = Piece(partition.model, artifact.codes(partition), partition.is_open)
            try:
                try_piece(trial, "prepare", piece)
            except RefusedError as refusal:
                raise refused(artifact.report.reasons, refusal) from refusal
            clock.lap("interpreter")


def _plans_by_executor(graphs: Graphs, target: Target, clock: Stopwatch, tuner: Tuner | None) -> Iterator[Plans]:
    """Plans of all graphs for each executor that may be the fastest, the likeliest first."""
    if target.executor != "auto":
        yield _plans(graphs, target, clock, tuner)
        return
    persistent, launch = replace(target, executor="persistent"), replace(target, executor="launch")
    untuned = _plans(graphs, persistent, clock)
    choice = clear_choice(list(untuned.values()))
    if choice != "launch":
        yield _plans(graphs, persistent, clock, tuner) if tuner else untuned
    if choice != "persistent":
        yield _plans(graphs, launch, clock, tuner)


def _plans(graphs: Graphs, target: Target, clock: Stopwatch, tuner: Tuner | None = None) -> Plans:
    clock.lap("plan")
    choosers = {p: tuner(graph, target) if tuner else first_ranked for p, graph in graphs.items()}
    if tuner:
        clock.lap("tune")
    plans = {p: make_plan(graph, target, choosers[p]) for p, graph in graphs.items()}
    clock.lap("plan")
    return plans


def _report(frontend: Frontend, partitions: Sequence[Partition], plans: Plans) -> Report:
    return make_report(frontend, partitions, [plan.graph for plan in plans.values()], list(plans.values()))


def inspect_model(data: bytes, options: Options, target: Target | None = None) -> Report:
    """What a model is, what of it can run on a device, and why not the rest; with a target, what that takes.

    Raises ModelError for a damaged model, ValueError for options that do not fit it.
    """
    with Trial(options.cpu_timeout) as trial:
        frontend = lower_model(read_model(data), options, data, trial, target.missing_types if target else ())
    partitions = frontend.cut()
    graphs = {p: optimize(frontend.lower_partition(p).graph) for p in partitions if p.on_device}
    if target is None:
        return make_report(frontend, partitions, [add_conversions(graph) for graph in graphs.values()])
    return _report(frontend, partitions, {p: make_plan(graph, target) for p, graph in graphs.items()})


def plan_model(data: bytes, options: Options, target: Target) -> tuple[Lowered, Plan]:
    """The stages before code generation for a model that runs wholly on the device.

    Raises UnsupportedError with every reason if it does not.
    """
    with Trial(options.cpu_timeout) as trial:
        lowered = lower_model(read_model(data), options, data, trial, target.missing_types).lowered
    if lowered.obstacles:
        raise UnsupportedError(lowered.obstacles)
    return lowered, make_plan(optimize(lowered.graph), target)
