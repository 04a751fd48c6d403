"""The cold path: the bytes of a .tflite file -> everything that running it takes, as data.

Needs no device, only its :class:`Target`. A warm start imports nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from tflgpu.artifact.artifact import Artifact, CpuPartition, DevicePartition
from tflgpu.codegen.assemble import assemble
from tflgpu.errors import UnsupportedError
from tflgpu.frontend.frontend import Frontend
from tflgpu.frontend.lowered import Lowered
from tflgpu.frontend.partition import Partition
from tflgpu.frontend.submodel import submodel
from tflgpu.graph.ir import Graph
from tflgpu.kernels.request import Chooser, first_ranked
from tflgpu.options import Options
from tflgpu.passes import optimize
from tflgpu.plan import Plan, make_plan
from tflgpu.plan.boundary import add_conversions
from tflgpu.plan.executor_heuristics import clear_choice
from tflgpu.report.report import Report
from tflgpu.report.stopwatch import Stopwatch
from tflgpu.target import ExecutorName, Target

# Measures kernels of a graph on the device that the target describes, and chooses their parameters accordingly.
Tuner = Callable[[Graph, Target], Chooser]


def compile_model(data: bytes, options: Options, target: Target) -> Artifact:
    """All stages but the device's own compiler.

    Raises ModelError for a damaged model, UnsupportedError with every reason if an operator has nowhere to run,
    ValueError for options that do not fit the model.
    """
    return compile_rivals(data, options, target, Stopwatch())[0]


def compile_rivals(
    data: bytes, options: Options, target: Target, clock: Stopwatch, tuner: Tuner | None = None
) -> tuple[Artifact, ...]:
    """:func:`compile_model` once for each executor that may be the fastest: two where only measuring can tell.

    tuner: what chooses the parameters of kernels; by default their own model does.
    """
    frontend = Frontend(data, options)
    partitions = frontend.partitions()
    lowered = {n: frontend.lower_partition(partition) for n, partition in enumerate(partitions) if partition.on_device}
    graphs = {n: optimize(partition.graph) for n, partition in lowered.items()}

    @cache
    def planned(executor: ExecutorName, tuner: Tuner | None) -> dict[int, Plan]:
        chosen = replace(target, executor=executor)
        clock.lap("plan")
        choosers = {n: tuner(graph, chosen) if tuner else first_ranked for n, graph in graphs.items()}
        if tuner:
            clock.lap("tune")
        plans = {n: make_plan(graph, chosen, choosers[n]) for n, graph in graphs.items()}
        clock.lap("plan")
        return plans

    def artifact(plans: Mapping[int, Plan]) -> Artifact:
        compiled = tuple(
            _device_partition(partition, lowered[n], plans[n])
            if partition.on_device
            else _cpu_partition(partition, frontend)
            for n, partition in enumerate(partitions)
        )
        clock.lap("render")
        report = frontend.report(partitions, [plan.graph for plan in plans.values()], list(plans.values()))
        return Artifact(*frontend.interface(), compiled, report)

    executors: tuple[ExecutorName, ...] = (target.executor,)
    if target.executor == "auto":
        choice = clear_choice(list(planned("persistent", None).values()))
        executors = (choice,) if choice else ("persistent", "launch")
    return tuple(artifact(planned(executor, tuner)) for executor in executors)


def _device_partition(partition: Partition, lowered: Lowered, plan: Plan) -> DevicePartition:
    return DevicePartition(partition.inputs, partition.outputs, *assemble(plan, [t.dtype for _, t in lowered.outputs]))


def _cpu_partition(partition: Partition, frontend: Frontend) -> CpuPartition:
    return CpuPartition(
        partition.inputs, partition.outputs, submodel(frontend.data, frontend.entry.subgraph, partition)
    )


def inspect_model(data: bytes, options: Options, target: Target | None = None) -> Report:
    """What a model is, what of it can run on a device, and why not the rest; with a target, what that takes.

    Raises ModelError for a damaged model, ValueError for options that do not fit it.
    """
    frontend = Frontend(data, options)
    partitions = frontend.cut()
    graphs = [optimize(frontend.lower_partition(partition).graph) for partition in partitions if partition.on_device]
    if target is None:
        return frontend.report(partitions, [add_conversions(graph) for graph in graphs])
    plans = [make_plan(graph, target) for graph in graphs]
    return frontend.report(partitions, [plan.graph for plan in plans], plans)


def plan_model(data: bytes, options: Options, target: Target) -> tuple[Lowered, Plan]:
    """The stages before code generation for a model that runs wholly on the device.

    Raises UnsupportedError with every reason if it does not.
    """
    lowered = Frontend(data, options).lowered
    if lowered.obstacles:
        raise UnsupportedError(lowered.obstacles)
    return lowered, make_plan(optimize(lowered.graph), target)
