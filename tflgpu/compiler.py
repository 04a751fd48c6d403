"""The cold path: the bytes of a .tflite file -> everything that running it takes, as data.

Needs no device, only its :class:`Target`. A warm start imports nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tflgpu import interpreter
from tflgpu.artifact import Artifact, CpuPart, DevicePart, Interface, TensorIndex
from tflgpu.codegen import render, render_persistent
from tflgpu.entry_point import EntryPoint, entry_point
from tflgpu.errors import ModelError, UnsupportedError
from tflgpu.executable import Executable
from tflgpu.ir import Graph
from tflgpu.layout import Shape
from tflgpu.link import link
from tflgpu.lower import Entry, Lowered, lower
from tflgpu.ops.kernel import Chooser, likeliest
from tflgpu.options import Options
from tflgpu.partition import Piece, partition
from tflgpu.passes import optimize
from tflgpu.plan import Plan, make_plan
from tflgpu.plan.boundary import add_conversions
from tflgpu.plan.waves import clear_choice
from tflgpu.quantization import Grid
from tflgpu.report import Report
from tflgpu.reporting import describe, make_report
from tflgpu.resize import check_batch, requested_shapes
from tflgpu.stopwatch import Stopwatch
from tflgpu.submodel import submodel
from tflgpu.target import ExecutorName, Target
from tflgpu.tensor_info import TensorInfo
from tflgpu.tflite import FileTensor, read_model

# Measures kernels of a graph on the device that the target describes, and chooses their parameters accordingly.
Tuner = Callable[[Graph, Target], Chooser]


def compile_model(data: bytes, options: Options, target: Target, clock: Stopwatch) -> Artifact:
    """All stages but the device's own compiler.

    Raises ModelError for a damaged model, UnsupportedError with every reason if an operator has nowhere to run,
    ValueError for options that do not fit the model.
    """
    return compile_rivals(data, options, target, clock)[0]


def compile_rivals(
    data: bytes, options: Options, target: Target, clock: Stopwatch, tuner: Tuner | None = None
) -> tuple[Artifact, ...]:
    """:func:`compile_model` once for each executor that may be the fastest: two where only measuring can tell.

    tuner: what chooses the parameters of kernels; by default their own model does.
    """
    frontend = Frontend(data, options)
    pieces = frontend.pieces()
    lowered = {n: frontend.lower_piece(piece) for n, piece in enumerate(pieces) if piece.on_device}
    graphs = {n: optimize(part.graph) for n, part in lowered.items()}

    @cache
    def planned(executor: ExecutorName, tuner: Tuner | None) -> dict[int, Plan]:
        chosen = replace(target, executor=executor)
        clock.lap("plan")
        choosers = {n: tuner(graph, chosen) if tuner else likeliest for n, graph in graphs.items()}
        if tuner:
            clock.lap("tune")
        plans = {n: make_plan(graph, chosen, choosers[n]) for n, graph in graphs.items()}
        clock.lap("plan")
        return plans

    def artifact(plans: Mapping[int, Plan]) -> Artifact:
        parts = tuple(
            _device_part(piece, lowered[n], plans[n]) if piece.on_device else _cpu_part(piece, frontend)
            for n, piece in enumerate(pieces)
        )
        clock.lap("render")
        report = frontend.report(pieces, [plan.graph for plan in plans.values()], list(plans.values()))
        return Artifact(*frontend.interface(), parts, report)

    executors: tuple[ExecutorName, ...] = (target.executor,)
    if target.executor == "auto":
        choice = clear_choice(list(planned("persistent", None).values()))
        executors = (choice,) if choice else ("persistent", "launch")
    return tuple(artifact(planned(executor, tuner)) for executor in executors)


def assemble(plan: Plan, output_types: Sequence[str] | None = None) -> tuple[str, Executable]:
    """The program of a plan for its executor, and how it is launched. output_types: as :func:`link` takes them."""
    source = render(plan)
    executable = link(plan, source.names, output_types)
    if plan.target.executor == "launch" or not executable.launches:
        return source.text, executable
    text, persistent = render_persistent(source, executable, ptx=plan.target.ptx)
    return text, replace(executable, persistent=persistent)


def _device_part(piece: Piece, lowered: Lowered, plan: Plan) -> DevicePart:
    return DevicePart(piece.inputs, piece.outputs, *assemble(plan, [t.dtype for _, t in lowered.outputs]))


def _cpu_part(piece: Piece, frontend: Frontend) -> CpuPart:
    return CpuPart(piece.inputs, piece.outputs, submodel(frontend.data, frontend.entry.subgraph, piece))


def inspect_model(data: bytes, options: Options, target: Target | None = None) -> Report:
    """What a model is, what of it can run on a device, and why not the rest; with a target, what that takes.

    Raises ModelError for a damaged model, ValueError for options that do not fit it.
    """
    frontend = Frontend(data, options)
    pieces = frontend.cut()
    graphs = [optimize(frontend.lower_piece(piece).graph) for piece in pieces if piece.on_device]
    if target is None:
        return frontend.report(pieces, [add_conversions(graph) for graph in graphs])
    plans = [make_plan(graph, target) for graph in graphs]
    return frontend.report(pieces, [plan.graph for plan in plans], plans)


def plan_model(data: bytes, options: Options, target: Target) -> tuple[Lowered, Plan]:
    """The stages before code generation for a model that runs wholly on the device.

    Raises UnsupportedError with every reason if it does not.
    """
    lowered = Frontend(data, options).lowered
    if lowered.obstacles:
        raise UnsupportedError(lowered.obstacles)
    return lowered, make_plan(optimize(lowered.graph), target)


class Frontend:
    """A model read, and lowered as a whole: what decides which of its operators go to the device."""

    def __init__(self, data: bytes, options: Options) -> None:
        self.data, self.options = data, options
        self.model = read_model(data)
        self.entry = entry_point(self.model, options.signature, options.outputs)
        self.subgraph = self.model.subgraphs[self.entry.subgraph]
        self.shapes = requested_shapes(self.entry, options)
        self.grids = _grids(self.entry, options.uint8_inputs or {})
        lowered = self._lower(self.entry)
        self.lowered = replace(lowered, entries=_sent_to_cpu(lowered.entries, options.cpu_ops))
        if options.batch is not None and self.shapes and not self.lowered.obstacles:
            check_batch(self.lowered, options.batch)

    def interface(self) -> tuple[Interface, Interface]:
        """The model's inputs and outputs, with the shapes that they were compiled for."""
        graph, entry = self.lowered.graph, self.entry
        sides = ((entry.inputs, graph.inputs), (entry.outputs, graph.outputs))
        inputs, outputs = (
            tuple(self._described(name, tensor, graph[t].shape) for (name, tensor), t in zip(*side, strict=True))
            for side in sides
        )
        return inputs, outputs

    def _described(self, name: str, tensor: FileTensor, shape: Shape) -> tuple[TensorIndex, TensorInfo]:
        free = tuple(i for i, d in enumerate(tensor.signature) if d == -1)
        dtype = self.grids[tensor.index].dtype if tensor.index in self.grids else tensor.dtype
        return tensor.index, TensorInfo(name, shape, dtype, tensor.quantization, free)

    def pieces(self) -> tuple[Piece, ...]:
        """The pieces to run. Raises ModelError or UnsupportedError if there is nobody to run one."""
        if not self.lowered.obstacles:
            return self.cut()
        if self.lowered.unknown:
            raise ModelError("; ".join(self.lowered.unknown))
        if self.grids:
            reason = "Options.uint8_inputs is for models that run wholly on the device"
            raise UnsupportedError((*self.lowered.obstacles, reason))
        if self.options.fallback == "forbid":
            raise UnsupportedError(self.lowered.obstacles)
        if not interpreter.is_installed():
            raise UnsupportedError((*self.lowered.obstacles, f"to run these on the CPU, {interpreter.ADVICE}"))
        return self.cut()

    def cut(self) -> tuple[Piece, ...]:
        """One piece for the device if all of the model can go there, else as few as possible for both sides."""
        inputs, outputs = ([t.index for _, t in side] for side in (self.entry.inputs, self.entry.outputs))
        if not self.lowered.obstacles:
            return (Piece(True, tuple(range(len(self.entry.operators))), tuple(inputs), tuple(outputs)),)
        # What shapes the CPU's operators give for other input shapes is not known before they run.
        capable = frozenset[int]() if self.shapes else self.lowered.capable
        return partition(self.subgraph, capable, inputs, outputs)

    def report(self, pieces: Sequence[Piece], graphs: Sequence[Graph], plans: Sequence[Plan] = ()) -> Report:
        """graphs: of the pieces on the device, optimized and with their conversions; plans: of the same."""
        inputs, outputs = ([info for _, info in side] for side in self.interface())
        info = describe(self.model, self.entry, inputs, outputs)
        return make_report(info, self.subgraph, self.lowered, pieces, graphs, plans)

    def lower_piece(self, piece: Piece) -> Lowered:
        """A piece for the device as a graph of its own."""
        if len(piece.operators) == len(self.entry.operators):
            return self.lowered
        part = self._lower(self.entry.piece(self.subgraph, piece))
        assert not part.obstacles, part.obstacles
        return part

    def _lower(self, entry: EntryPoint) -> Lowered:
        simulate = self.options.quantized == "simulate"
        return lower(self.model, entry, simulate=simulate, shapes=self.shapes, grids=self.grids)


def _grids(entry: EntryPoint, wanted: Mapping[str, tuple[float, float]]) -> dict[TensorIndex, Grid]:
    """What the bytes of inputs stand for, from their means and standard deviations by name.

    Raises ValueError for an input that is not there, or holds no floats.
    """
    inputs = dict(entry.inputs)
    for name in wanted:
        if name not in inputs:
            raise ValueError(f"Options.uint8_inputs names {name!r}; the model has the inputs {list(inputs)}")
        if inputs[name].dtype != "float32":
            raise ValueError(f"Options.uint8_inputs names {name!r}, which is {inputs[name].dtype}, not float32")
    return {inputs[name].index: Grid("uint8", 1 / std, mean) for name, (mean, std) in wanted.items()}


def _sent_to_cpu(entries: tuple[Entry, ...], wanted: Sequence[str | int | range]) -> tuple[Entry, ...]:
    """The entries with a reason more for each operator that the caller wants on the CPU.

    Raises ValueError for an operator that the model does not have.
    """
    known = {e.code for e in entries} | {e.index for e in entries}
    indices: set[str | int] = set()
    for item in wanted:
        each = list(item) if isinstance(item, range) else [item]
        missing = [i for i in each if i not in known]
        if missing:
            raise ValueError(
                f"Options.cpu_ops names {missing[0]!r}, but the model has {len(entries)} operators: "
                f"{', '.join(sorted({e.code for e in entries}))}"
            )
        indices.update(each)
    sent = "Options.cpu_ops sends it to the CPU"
    return tuple(
        replace(e, reasons=(*e.reasons, sent)) if e.code in indices or e.index in indices else e for e in entries
    )
