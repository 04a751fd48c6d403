"""The result of every kernel of one run: how to find the first that goes wrong.

The kernels are those that :func:`tflgpu.compile` makes, fused and stored as there. To ask for intermediate tensors as
outputs would change what is looked at: outputs break fusion and are stored in float in every precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tflgpu.artifact.artifact import DevicePartition, pieces_of
from tflgpu.artifact.serializer import open_cache
from tflgpu.codegen.link import state_bindings
from tflgpu.compiler import compile_piece, device_partition
from tflgpu.fallback.cpu_engine import cpu_engine_of
from tflgpu.fallback.guarded_process import GuardedProcess
from tflgpu.fallback.guarded_requests import litert_shapes
from tflgpu.fallback.submodel import extract_submodel
from tflgpu.frontend.control_flow.pieces import Call, LoweredPiece
from tflgpu.frontend.frontend import lower_model
from tflgpu.frontend.partition import Partition
from tflgpu.graph.ir import Graph
from tflgpu.graph.layout import unpack
from tflgpu.measure.device_model import planned_target
from tflgpu.measure.integer_check import without_wrong_unit
from tflgpu.model.reader import read_model
from tflgpu.options import Options
from tflgpu.passes import optimize
from tflgpu.passes.half_precision import keep_measured
from tflgpu.plan import make_plan
from tflgpu.report.half_precision import FloatStorage, FloatTensor
from tflgpu.runtime.engine import engine_of
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.instance import checked_results
from tflgpu.runtime.opencl.build import WideGroupsError, check_groups
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program
from tflgpu.runtime.opencl.session import DeviceFailures, Session, open_session
from tflgpu.target import Target

Array = NDArray[Any]

Results = TypeVar("Results")


@dataclass(frozen=True)
class Result:
    """Result that one kernel has written.

    tensor: the name in the file, ``""`` for a result within an operator. operators: those that the kernel computes.
    value: of the tensor's shape, in the element type that the device stores; quantized tensors as real numbers.
    """

    tensor: str
    operators: tuple[int, ...]
    value: Array


def trace(
    model: bytes,
    inputs: Sequence[Array],
    options: Options,
    outputs: dict[int, Array] | None = None,
    floats: FloatStorage | None = None,
) -> list[Result]:
    """Run a model once, and return the result of every kernel. The errors are those of :func:`tflgpu.compile`.

    A loop or a branch that is a piece of its own has one entry for each of its results.

    Args:
        model: The bytes of the file.
        inputs: Arrays in the order of the model's inputs.
        options: How the model is compiled.
        outputs: Gets the values of the model's outputs, by tensor of the file.
        floats: What stays in float in the model as it was compiled; what runs have found of that stays here, too.

    Returns:
        One entry for each kernel, in order of execution.
    """
    device = choose(options.device, options.threads)
    session = open_session(device)
    target = without_wrong_unit(planned_target(device, options), device, open_cache(options), lambda: session)
    found: list[Result] = []
    measured = [t for t in floats.tensors if t.reason == "measured"] if floats is not None else []
    with GuardedProcess(options.cpu_part.trial_timeout) as process:
        frontend = lower_model(read_model(model), options, litert_shapes(model, process), target.missing_types)
        values = {tensor.index: array for (_, tensor), array in zip(frontend.entry.inputs, inputs, strict=True)}
        values |= frontend.first_values()
        for partition in frontend.partitions():
            given = [values[t] for t in partition.inputs]
            call = frontend.call(partition)
            if call is not None:
                with DeviceFailures(device, "running the model"):
                    results = on_groups_of_the_device(
                        target, partial(_run_call, partition, call, given, session, measured)
                    )
                names = [frontend.subgraph.tensors[t].name for t in partition.outputs]
                found += (Result(*each) for each in zip(names, repeat(partition.operators), results, strict=False))
            elif partition.on_device:
                with DeviceFailures(device, "running the model"):
                    (piece,) = frontend.pieces(partition)
                    results = on_groups_of_the_device(
                        target, partial(_run_partition, piece, given, session, found, measured)
                    )
            else:
                part = replace(extract_submodel(model, frontend, partition), is_open=True)
                results = cpu_engine_of(part, process, None).run(given)
            values |= zip(partition.outputs, results, strict=True)
        if outputs is not None:
            outputs |= {tensor.index: values[tensor.index] for _, tensor in frontend.entry.outputs}
    return found


def on_groups_of_the_device(target: Target, run: Callable[[Target], Results]) -> Results:
    """Return what ``run`` gives for the target, once the device's compiler allows the groups of all kernels.

    Args:
        target: As planned.
        run: Raises WideGroupsError for groups that are too wide.

    Returns:
        The result of ``run``.
    """
    while True:
        try:
            return run(target)
        except WideGroupsError as error:
            target = target.with_group_sizes(error.sizes)


def _executor(piece: DevicePartition, session: Session) -> LaunchExecutor:
    """Raise WideGroupsError."""
    program = compile_program(session.context, piece.source)
    check_groups(program, piece.executable, session)
    return LaunchExecutor(piece.executable, program, session)


def _optimized(graph: Graph, kept: Sequence[FloatTensor]) -> Graph:
    """Return the graph after all passes, with these tensors in float. Those without a name are known by the operators
    of the kernel that computes them."""
    graph = optimize(graph)
    names = {each.name for each in kept if each.name}
    unnamed = [set(each.operators) for each in kept if not each.name]
    marked = {
        t
        for node in graph.nodes
        for t in (node.output, *node.inputs)
        if graph[t].name in names
        or (not graph[t].name and any(node.sources and each.issuperset(node.sources) for each in unnamed))
    }
    return keep_measured(graph, [t for t in marked if graph[t].dtype == "float32"])


def _run_call(
    partition: Partition,
    call: Call,
    inputs: Sequence[Array],
    session: Session,
    kept: Sequence[FloatTensor],
    target: Target,
) -> list[Array]:
    """Run a loop or a branch, whose kernels are not observed. Returns its outputs."""
    plans = [make_plan(_optimized(piece.graph, kept), target) for piece in call.pieces]
    compiled = device_partition(partition, call, list(map(compile_piece, call.pieces, plans)), plans)
    return engine_of(compiled, [_executor(piece, session) for piece in pieces_of(compiled)]).run(inputs)


def _run_partition(
    piece: LoweredPiece,
    inputs: Sequence[Array],
    session: Session,
    found: list[Result],
    kept: Sequence[FloatTensor],
    target: Target,
) -> list[Array]:
    """Run a partition on the device, append its kernels' results to ``found``, return its outputs."""
    plan = make_plan(_optimized(piece.graph, kept), target)
    compiled = compile_piece(piece, plan)
    executor = _executor(compiled, session)
    for state, binding in zip(plan.graph.states, state_bindings(plan, compiled.executable), strict=True):
        if state.initial is not None:
            executor.set_state(binding, state.initial)

    def record(number: int, elements: Array) -> None:
        node = plan.kernels[number].node
        storage, tensor = plan.storage[node.output], plan.graph[node.output]
        shape = tensor.shape
        value = elements[: tensor.size].reshape(shape) if storage.linear else unpack(elements, shape)
        if storage.grid is not None:
            value = (value.astype(np.float32) - storage.grid.zero) * np.float32(storage.grid.scale)
        if tensor.factor != 1.0:
            value = np.multiply(value, tensor.factor, dtype=np.float32)
        found.append(Result(tensor.name, node.sources, np.ascontiguousarray(value)))

    written = [plan.storage[k.node.output] for k in plan.kernels]
    results = executor.observe(inputs, [(s.type, s.geometry.elements) for s in written], record)
    return checked_results(compiled, results)
