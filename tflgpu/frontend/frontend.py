"""A model lowered as a whole, and cut into partitions for the device and for the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.errors import ModelError, UnsupportedError, install_command, internal_faults
from tflgpu.frontend.control_flow.pieces import Call, LoweredPiece
from tflgpu.frontend.cpu_assumptions import block_obstacles, keep_on_one_side
from tflgpu.frontend.entry_point import (
    EntryPoint,
    check_batch,
    entry_point,
    requested_shapes,
    signatures_of,
    with_bound,
)
from tflgpu.frontend.lower import Choices, InferShapes, lower, lower_bounded, with_values
from tflgpu.frontend.lowered import Entry, Lowered
from tflgpu.frontend.partition import Partition, holding_variables, partition
from tflgpu.graph.layout import Shape
from tflgpu.model.model import NUMPY_TYPES, Array, FileTensor, Model, Subgraph, VariableUse
from tflgpu.model.quantization import Grid, is_quantized
from tflgpu.model.tensor_info import (
    InitialValue,
    InitialValues,
    Interface,
    PassedVariable,
    SignatureInfo,
    TensorIndex,
    TensorInfo,
)
from tflgpu.options import Options

# Elements of tensors whose sizes only a run can tell, by their upper bounds. More take longer on the device, which
# computes all of them, than a crossing to LiteRT, which computes those that are meant.
MOST_BOUNDED = 1 << 17

EVERY = "*"  # in ``CpuPart.operators``, all of them

ADVICE = f"install the CPU fallback with {install_command('fallback')}"


@dataclass(frozen=True)
class Frontend:
    """A model lowered as a whole: what decides which of its operators go to the device.

    choices: how it was lowered, and its parts are. lowered: the graph, and the obstacles of each operator. has_litert:
    whether LiteRT is there to run what the device cannot.
    """

    options: Options
    model: Model
    entry: EntryPoint
    choices: Choices
    lowered: Lowered
    has_litert: bool

    @property
    def subgraph(self) -> Subgraph:
        """The subgraph that the signature names."""
        return self.model.subgraphs[self.entry.subgraph]

    def interface(self) -> tuple[Interface, Interface]:
        """Return the model's inputs and outputs, with the shapes that they were compiled for."""
        graph, entry = self.lowered.graph, self.entry
        sides = ((entry.inputs, [graph[t].shape for t in graph.inputs]), (entry.outputs, self.lowered.output_shapes))
        inputs, outputs = (
            tuple(
                _described(name, tensor, shape, self.choices.grids) for (name, tensor), shape in zip(*side, strict=True)
            )
            for side in sides
        )
        return inputs, outputs

    def signatures(self) -> tuple[SignatureInfo, ...]:
        """Return the file's signatures, each with the shapes that the file declares."""

        entries = [self.entry if e.signature == self.entry.signature else e for e in signatures_of(self.model)]
        if self.entry.signature is None:
            entries.append(self.entry)
        found = []
        for entry in entries:
            grids = self.choices.grids if entry is self.entry else {}
            sides = [tuple(_described(n, t, t.shape, grids)[1] for n, t in s) for s in (entry.inputs, entry.outputs)]
            found.append(SignatureInfo(entry.signature, *sides))
        return tuple(found)

    def partitions(self) -> tuple[Partition, ...]:
        """Return the pieces to run. Raises ModelError or UnsupportedError if one cannot run anywhere."""
        if foreign := tuple(self._foreign()):
            raise UnsupportedError((*self.lowered.obstacles, *foreign))
        if self.lowered.unknown:
            raise ModelError("; ".join(self.lowered.unknown))
        if self.choices.grids and not self.lowered.is_whole:
            reason = "Options.interface.uint8_inputs is for models that run on the device as one piece"
            raise UnsupportedError((*self.lowered.cuts, reason))
        if self.entry.bound and (unbindable := tuple(self._unbindable())):
            raise UnsupportedError((*self.lowered.cuts, *unbindable))
        if not self.lowered.obstacles:
            return self.cut()
        if self.options.fallback == "forbid":
            raise UnsupportedError(self.lowered.obstacles)
        if self.lowered.nowhere:
            raise UnsupportedError((*self.lowered.obstacles, *self.lowered.nowhere))
        if not self.has_litert:
            raise UnsupportedError((*self.lowered.obstacles, f"to run these on the CPU, {ADVICE}"))
        return self.cut()

    def _unbindable(self) -> Iterator[str]:
        """Why outputs and inputs cannot be states on the device."""
        if not self.lowered.is_whole:
            yield "Options.interface.bound is for models that run on the device as one piece"
        for (output, _), (name, tensor) in self.entry.bound:
            if is_quantized(tensor) or -1 in tensor.signature:
                why = "its shape is open" if -1 in tensor.signature else "it is quantized"
                yield f"Options.interface.bound binds output {output!r} to input {name!r}: {why}"

    def bound_interface(self) -> tuple[tuple[str, TensorInfo], ...]:
        """Return the inputs that have the value of an output in the next run, after the names of these outputs."""
        shaped = ((o, i, self.lowered.bound[i[1].index].shape) for (o, _), i in self.entry.bound)
        return tuple((o, _described(*i, shape, {})[1]) for o, i, shape in shaped)

    def variables_between(
        self, partitions: Sequence[Partition]
    ) -> tuple[tuple[PassedVariable, ...], tuple[InitialValues, ...]]:
        """Return the variables whose values partitions take and give, and what CALL_ONCEs give any variables.

        Args:
            partitions: All partitions of the model.
        """
        held = {use.key for partition in partitions for use in partition.held}
        passed = (u for u in self.entry.variables if u.key not in held)
        first = (
            InitialValues(each.subgraph, tuple(InitialValue(u.key, variable_info(u), v) for u, v in each.values))
            for each in self.subgraph.first_values
        )
        found = (PassedVariable(u.key, variable_info(u), u.before, u.after, self._constant(u.after)) for u in passed)
        return tuple(found), tuple(first)

    def _constant(self, tensor: TensorIndex | None) -> Array | None:
        """Return the elements of a constant of the file."""
        return None if tensor is None else self.subgraph.tensors[tensor].data

    def first_values(self) -> dict[TensorIndex, Array]:
        """Return the values of variables before the first run, by tensor, in the elements of the file."""
        found: dict[TensorIndex, Array] = {}
        given = {use.key: value for once in self.subgraph.first_values for use, value in once.values}
        for use in self.entry.variables:
            if use.before is not None:
                found[use.before] = given.get(use.key, np.zeros(use.form.shape, use.form.dtype))
        return found

    def _foreign(self) -> Iterator[str]:
        """Yield inputs and outputs that callers cannot give or take as arrays. LiteRT's strings can be taken, not
        given."""
        sides = (("input", self.entry.inputs, NUMPY_TYPES), ("output", self.entry.outputs, {*NUMPY_TYPES, "string"}))
        for side, tensors, known in sides:
            for name, tensor in tensors:
                if tensor.dtype not in known:
                    yield f"{side} {name!r} has element type {tensor.dtype}, which numpy's arrays do not have"

    @internal_faults("cutting the model into partitions")
    def cut(self) -> tuple[Partition, ...]:
        """One piece for the device if all of the model can go there, else as few as possible for both sides."""
        inputs, outputs = ([t.index for _, t in side] for side in (self.entry.inputs, self.entry.outputs))
        lowered, variables = self.lowered, self.entry.variables
        operators = tuple(range(len(self.entry.operators)))
        if self.subgraph.is_left_to_litert:
            return (Partition(False, operators, tuple(inputs), tuple(outputs)),)
        if lowered.is_whole:
            return (Partition(True, operators, tuple(inputs), tuple(outputs), variables),)
        taken = [*inputs, *(use.before for use in variables if use.before is not None)]
        given = [*outputs, *(t for use in variables if (t := use.after) is not None and self._constant(t) is None)]
        pieces = partition(self.subgraph, lowered.capable, taken, given, lowered.known, lowered.calls)
        return holding_variables(pieces, variables, [*inputs, *outputs], lowered.calls)

    def sizes(self, partition: Partition) -> dict[TensorIndex, Shape]:
        """Return the shapes of a piece's inputs, those left out that only a run can tell."""
        lowered = self.lowered
        return {t: lowered.bound[t].shape for t in partition.inputs if t in lowered.bound and t not in lowered.open}

    def call(self, partition: Partition) -> Call | None:
        """Return the loop or branch that a piece is; None for other pieces."""
        return next((self.lowered.calls.get(i) for i in partition.operators if partition.on_device), None)

    def pieces(self, partition: Partition) -> tuple[LoweredPiece, ...]:
        """Return the graphs that the device runs of a piece: one of most, several of a loop or branch."""
        call = self.call(partition)
        if call is not None:
            return call.pieces
        if not partition.on_device:
            return ()
        lowered = self.lower_partition(partition)
        types = tuple(lowered.output_types)
        return (LoweredPiece(lowered.graph, partition.inputs, partition.outputs, types, lowered.checks, lowered.trims),)

    def lower_partition(self, partition: Partition) -> Lowered:
        """Return a piece for the device as a graph of its own. Raises UnsupportedError if it cannot stand alone."""
        if self.lowered.is_whole:
            return self.lowered
        entry = self.entry.partition(self.subgraph, partition)
        part = lower(self.model, entry, self.choices, whole=self.lowered)
        if part.obstacles:  # what it lacks is known in the whole model only
            raise UnsupportedError(part.obstacles)
        return part


def variable_info(use: VariableUse) -> TensorInfo:
    """Return the name, the type and the shape of a variable.

    Args:
        use: A use of it.
    """
    return _described(use.form.name, use.form, use.form.shape, {})[1]


def lower_model(
    model: Model, options: Options, litert: InferShapes | None, missing_types: tuple[str, ...] = ()
) -> Frontend:
    """Lower the entry point that ``options`` name, as a whole.

    Args:
        model: The model.
        options: The caller's choices.
        litert: Infers the shapes of what only the CPU can compute, where it is to run anything; None where LiteRT is
            not installed.
        missing_types: Element types that the device does not compute with.

    Raises:
        ModelError: The model contradicts itself.
        ValueError: The options do not fit the model.
    """
    model = with_values(model)
    entry = entry_point(model, options.interface.signature, options.interface.outputs)
    entry = with_bound(entry, options.interface.bound or {})
    shapes = requested_shapes(entry, options)
    choices = Choices(
        fake_quantize=options.numerics.quantized == "fake_quantize",
        shapes=shapes,
        grids=_grids(entry, options.interface.uint8_inputs or {}),
        missing_types=missing_types,
        checks=options.numerics.checks,
    )
    has_choice = options.fallback == "auto" and litert is not None
    lowered = lower(
        model,
        entry,
        choices,
        infer=litert if options.fallback == "auto" else None,
        parted_loops=not has_choice,  # LiteRT takes less time where the host decides on each iteration
    )
    if lowered.obstacles and not options.numerics.checks and not options.cpu_part.operators:
        bounded = lower_bounded(model, entry, choices, most=MOST_BOUNDED if has_choice else None)
        lowered = bounded or lowered
    subgraph = model.subgraphs[entry.subgraph]
    sent = _sent_to_cpu(lowered.entries, options.cpu_part.operators, subgraph)
    outputs = {t.index for _, t in entry.outputs}
    lowered = replace(lowered, entries=keep_on_one_side(sent, entry.operators, subgraph.tensors, outputs))
    if options.shapes.batch is not None and shapes and not lowered.obstacles and not lowered.trims:
        check_batch(lowered, options.shapes.batch)
    return Frontend(options, model, entry, choices, lowered, litert is not None)


def _grids(entry: EntryPoint, wanted: Mapping[str, tuple[float, float]]) -> dict[TensorIndex, Grid]:
    """Return what the bytes of inputs stand for, from their means and standard deviations by name.

    Raises ValueError for an input that is not there, or holds no floats.
    """
    inputs = dict(entry.inputs)
    for name in wanted:
        if name not in inputs:
            raise ValueError(f"Options.interface.uint8_inputs names {name!r}; the model has the inputs {list(inputs)}")
        if inputs[name].dtype != "float32":
            raise ValueError(
                f"Options.interface.uint8_inputs names {name!r}, which is {inputs[name].dtype}, not float32"
            )
    return {inputs[name].index: Grid("uint8", 1 / std, mean) for name, (mean, std) in wanted.items()}


def _described(
    name: str, tensor: FileTensor, shape: Shape, grids: Mapping[TensorIndex, Grid]
) -> tuple[TensorIndex, TensorInfo]:
    free = tuple(i for i, d in enumerate(tensor.signature) if d == -1)
    dtype = grids[tensor.index].dtype if tensor.index in grids else tensor.dtype
    return tensor.index, TensorInfo(name, shape, dtype, tensor.quantization, free)


def _sent_to_cpu(
    entries: tuple[Entry, ...], wanted: Sequence[str | int | range], subgraph: Subgraph
) -> tuple[Entry, ...]:
    """Return the entries with a reason more for each operator that the caller wants on the CPU.

    Raises ValueError for an operator that the model does not have, or that LiteRT computes wrongly.
    """
    known = {e.code for e in entries} | {e.index for e in entries}
    indices: set[str | int] = {e.index for e in entries} if EVERY in wanted else set()
    for item in wanted:
        if item == EVERY:
            continue
        each = item if isinstance(item, range) else [item]
        missing = next((i for i in each if i not in known), None)
        if missing is not None:
            raise ValueError(
                f"Options.cpu_part.operators names {missing!r}, but the model has {len(entries)} operators: "
                f"{', '.join(sorted({e.code for e in entries}))}"
            )
        indices.update(each)
    sent = "Options.cpu_part.operators sends it to the CPU"
    for entry in entries:
        if entry.code in indices or entry.index in indices:
            for obstacle in block_obstacles(subgraph.operators[entry.index], subgraph):
                raise ValueError(f"{sent}, operator {entry.index} {entry.code}, but {obstacle}")
    return tuple(
        replace(e, reasons=(*e.reasons, sent)) if e.code in indices or e.index in indices else e for e in entries
    )
