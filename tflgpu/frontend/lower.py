"""Model -> Graph: operators become nodes, constants are evaluated, every obstacle is collected."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tflgpu.errors import ModelError, UnsupportedError, internal_faults
from tflgpu.frontend.control_flow.call import CONTROL_FLOW, lower_call
from tflgpu.frontend.control_flow.callee import Budget, Callee
from tflgpu.frontend.control_flow.pieces import BodyPart, Call, LoweredPiece
from tflgpu.frontend.cpu_assumptions import cpu_obstacles, keep_on_one_side
from tflgpu.frontend.entry_point import Bound, EntryPoint, entry_point
from tflgpu.frontend.graph_builder import EVALUATORS, GraphBuilder, evaluated, states_of
from tflgpu.frontend.lowered import KNOWN_CUSTOM, Entry, Lowered
from tflgpu.frontend.partition import partition
from tflgpu.frontend.resource_variables import VARIABLE_OPERATORS, variables_as_values
from tflgpu.frontend.run_time_sizes import GraphSizes
from tflgpu.graph.ir import Array, Graph, Tensor, TensorId, remove_dead
from tflgpu.graph.layout import Shape
from tflgpu.model.constants import densified
from tflgpu.model.file_checks import called_by
from tflgpu.model.model import FileTensor, Model, Operator, Subgraph, VariableUse
from tflgpu.model.quantization import (
    Grid,
    bias_position,
    biases_of_sums,
    dequantize_op,
    dynamic_weights,
    grid_of,
    has_grid,
    hold_op,
    is_quantized,
    mixture_reasons,
    quantize_op,
    view_dtype,
)
from tflgpu.model.run_time_numbers import Trim
from tflgpu.ops import Emitter, Site, find_operator
from tflgpu.ops.declaration import COMPLEX, SIZED
from tflgpu.ops.limits import growth_reasons, result_reasons, site_reasons
from tflgpu.ops.sixteen_bits import rule_for
from tflgpu.ops.sized import Number, Refused, SizedOperation

LOGGER = logging.getLogger(__name__)

# The shapes of an operator's outputs; None for each that only a run can tell. Given: the number of its subgraph, and
# that, the operator, and its inputs, None where absent.
InferShapes = Callable[[int, Subgraph, Operator, Sequence[Tensor | None]], Sequence[Shape | None]]

KNOWN_WITHOUT_DECLARATION = (*VARIABLE_OPERATORS, *CONTROL_FLOW)

# Callers know the range that a model takes: to clamp its input would be a kernel more.
UNCLAMPED = "{name!r} is not clamped to {low:.6g}..{high:.6g}, which its integers would do: it is an input of the model"


@dataclass(frozen=True)
class Choices:
    """Choices of the caller and of the device for the lowering of a model.

    fake_quantize: round every quantized activation to the values its type can hold, as integer kernels would; else it
        is clamped to their range.
    shapes: shapes of inputs that replace the file's, by the file's tensor index; what the file declares of any other
        tensor's shape is then not believed.
    grids: float inputs that callers give as integers, by the file's tensor index.
    missing_types: element types that the device does not compute with.
    checks: whether a run is to look for what LiteRT refuses at run time.
    """

    fake_quantize: bool = True
    shapes: Mapping[int, Shape] = field(default_factory=dict)
    grids: Mapping[int, Grid] = field(default_factory=dict)
    missing_types: Collection[str] = ()
    checks: bool = False


DEFAULT = Choices()


@internal_faults("lowering the model")
def lower_bounded(model: Model, entry: EntryPoint, choices: Choices, *, most: int | None = None) -> Lowered | None:
    """Lower with upper bounds for sizes that only a run can tell; see :func:`lower`.

    Args:
        model: The file.
        entry: The entry point.
        choices: Without checks.
        most: Elements, by their upper bounds, that tensors of such sizes may have together; None for any number.

    Returns:
        None unless all of it is for the device.
    """
    lowering = _Lowering(model, entry, choices, None)
    lowering.sizes = GraphSizes()
    try:
        lowered = lowering.run()
    except (ModelError, UnsupportedError) as error:
        LOGGER.info("sizes that only a run can tell have no upper bounds: %s", error)
        return None
    bounded = (t for t, known in lowering.sizes.open.items() if known and t in lowered.graph.producer)
    elements = sum(lowered.graph[t].size for t in bounded)
    if most is not None and elements > most:
        LOGGER.info("tensors of sizes that only a run can tell have up to %d elements, and go to the CPU", elements)
        return None
    return lowered


@internal_faults("lowering the model")
def lower(
    model: Model,
    entry: EntryPoint | None = None,
    choices: Choices = DEFAULT,
    *,
    infer: InferShapes | None = None,
    whole: Lowered | None = None,
    parted_loops: bool = False,
) -> Lowered:
    """Lower an entry point of a model.

    Args:
        model: The file.
        entry: None for the default of :func:`entry_point`.
        choices: The caller's options that change the graph.
        infer: Gives the shapes of what operators give that only the CPU can run; None for those that the file declares.
        whole: The lowered model of which ``entry`` is a part, which knows the shapes and some of the values that it
            reads.
        parted_loops: Whether loops with loops in them that only a run decides are for the device.

    Raises:
        ModelError: The model contradicts itself.
    """
    if entry is None:
        model = with_values(model)
        entry = entry_point(model)
    lowering = _Lowering(model, entry, choices, infer, whole)
    lowering.parted_loops = parted_loops
    return lowering.run()


def with_values(model: Model) -> Model:
    """Return the model with values in place of resource variables."""

    def evaluate(number: int) -> tuple[dict[int, Array], tuple[str, ...]]:
        subgraph = model.subgraphs[number]
        needed = tuple(o for o in subgraph.operators if o.code not in VARIABLE_OPERATORS)
        lowered = lower(model, EntryPoint(number, needed, (), ()))
        unknown = {t for o in needed for t in o.outputs if is_quantized(subgraph.tensors[t])}
        known = {i: t.data for i, t in lowered.bound.items() if t.data is not None and i not in unknown}
        return known, lowered.obstacles

    return variables_as_values(model, evaluate)


class _Lowering:
    def __init__(
        self,
        model: Model,
        entry: EntryPoint,
        choices: Choices,
        infer: InferShapes | None,
        whole: Lowered | None = None,
        outer: GraphBuilder | None = None,
        *,
        caller: _Lowering | None = None,
    ) -> None:
        self.model = model
        self.subgraph = densified(model.subgraphs[entry.subgraph])
        self.biases = biases_of_sums(self.subgraph)
        self.entry = entry
        self.choices = choices
        self.rounds, self.missing_types = choices.fake_quantize, choices.missing_types
        self.is_resized: bool = bool(choices.shapes) or (caller is not None and caller.is_resized)
        # Whether the shapes that the file declares for activations are taken as true.
        self.believes_shapes: bool = not self.is_resized and (caller is None or caller.believes_shapes)
        self.notes: dict[int, tuple[str, ...]] = {}  # by operator
        self.infer = infer
        self.whole = whole
        self.graph = GraphBuilder(self.subgraph, outer)
        self.is_called = caller is not None  # by an operator of another subgraph
        self.budget: Budget = caller.budget if caller else Budget(model.subgraphs)
        self.called: dict[int, Callee] = {}  # the subgraphs that operators call
        self.calls: dict[int, Call] = {}  # operators that are pieces of their own
        self.open: set[int] = set()  # tensors whose shape only a run can tell
        self.parted_loops: bool = caller is not None and caller.parted_loops
        self.sizes: GraphSizes | None = None  # where such tensors get upper bounds

    def run(self) -> Lowered:
        self._bind_constants()
        if self.whole is not None:
            for index in self.whole.known - self.graph.bound.keys():
                self.graph.bind(index, replace(self.whole.bound[index], id=next(self.graph.ids)))
        inputs = tuple(self._input(t) for _, t in self.entry.inputs)
        for pair in self.entry.bound:
            self._bind_state(pair.input[1])
        for use in self.entry.variables:
            self._bind_variable(use)
        entries = tuple(self._entry(o) for o in self.entry.operators)
        given = {t.index for _, t in self.entry.outputs}
        entries = keep_on_one_side(entries, self.entry.operators, self.subgraph.tensors, given)
        for _, tensor in self.entry.outputs:
            if tensor.dtype == "resource":
                raise ModelError(f"output {tensor.name!r} is the handle of a variable, which has no value")
            self.graph.read(tensor.index)  # perhaps a variable tensor that no operator touches
        for pair in self.entry.bound:
            self._write_state(pair)
        if not any(entry.reasons for entry in entries):
            for use in self.entry.variables:
                self._write_variable(use)
        states = tuple(states_of(self.graph))
        outputs = tuple(self._output(t) for _, t in self.entry.outputs)
        checked = tuple(self.graph.written(check.found).id for check in self.graph.checks)
        trims, sizes = self._trims()
        graph = Graph(self.graph.tensors, tuple(self.graph.nodes), inputs, (*outputs, *checked, *sizes), states)
        sides, bound = (self.entry.inputs, self.entry.outputs), self.graph.bound
        faults = tuple(check.fault for check in self.graph.checks)
        return Lowered(remove_dead(graph), entries, *sides, bound, frozenset(self.open), faults, self.calls, trims)

    def _trims(self) -> tuple[tuple[Trim, ...], tuple[TensorId, ...]]:
        """Return what a run cuts off of the outputs, and copies of the sizes that say how much."""
        trims: list[Trim] = []
        copies: dict[Number, TensorId] = {}
        for output, (_, file_tensor) in enumerate(self.entry.outputs if self.sizes else ()):
            assert self.sizes is not None
            for axis, size in self.sizes.of(self.graph.bound[file_tensor.index]).items():
                if size not in copies:
                    copy = replace(size.tensor, id=next(self.graph.ids), name="")
                    copies[size] = self.graph.add_map(size.tensor, copy).id
                trims.append(Trim(output, axis, [*copies].index(size)))
        return tuple(trims), tuple(copies.values())

    def _bind_constants(self) -> None:
        dynamic = dynamic_weights(self.subgraph) if self.rounds else frozenset[int]()
        for tensor in self.subgraph.tensors:
            if tensor.data is not None:
                self.graph.bind(tensor.index, self.graph.tensor(tensor).changed(dynamic=tensor.index in dynamic))

    def _input(self, tensor: FileTensor) -> int:
        """Bind a graph input; integers that stand for numbers become these in the first node that touches them."""
        shapes = self.choices.shapes
        shape = self.whole.bound[tensor.index].shape if self.whole else shapes.get(tensor.index, tensor.shape)
        tensor = replace(tensor, shape=shape)
        grid = grid_of(tensor) if is_quantized(tensor) else self.choices.grids.get(tensor.index)
        given = replace(self.graph.tensor(tensor), dtype=grid.dtype if grid else tensor.dtype)
        self.graph.tensors[given.id] = given
        if grid:
            seen = replace(self.graph.tensor(tensor), data=None)
            self.graph.bind(tensor.index, self.graph.add_map(given, seen, dequantize_op(grid)))
        else:
            self.graph.bound[tensor.index] = given
        return given.id

    def _bind_state(self, tensor: FileTensor) -> None:
        """Bind an input that has the value of an output of the last run."""
        tensor = replace(tensor, shape=self.choices.shapes.get(tensor.index, tensor.shape))
        self.graph.bind(tensor.index, self.graph.variables.start(tensor.index, tensor, held=True))

    def _write_state(self, bound: Bound) -> None:
        """Let an input have the value of an output in the next run."""
        (output, source), (name, tensor) = bound
        value = self.graph.read(source.index)
        start = self.graph.variables.known[tensor.index].start
        assert value is not None and start is not None
        if (value.shape, value.dtype) != (start.shape, start.dtype):
            forms = f"{value.dtype}{list(value.shape)} and {start.dtype}{list(start.shape)}"
            raise UnsupportedError((f"output {output!r} cannot be bound to input {name!r}: they are {forms}",))
        self.graph.variables.assign(tensor.index, value)

    def _bind_variable(self, use: VariableUse) -> None:
        """Bind the tensor that has a resource variable's value at the start of a run."""
        start = self.graph.variables.start(use.key, use.form, held=True, precise=use.is_shared)
        if use.before is not None:
            self.graph.bind(use.before, start)
            if -1 in use.form.signature:
                if self.sizes is not None:
                    raise Refused(f"the size of variable {use.form.name!r} is known only at run time")
                self.open.add(use.before)

    def _write_variable(self, use: VariableUse) -> None:
        """Let a resource variable have a value in the next run."""
        if use.after is not None:
            value = self.graph.read(use.after)
            assert value is not None
            self.graph.variables.assign(use.key, value)

    def _output(self, tensor: FileTensor) -> int:
        value = self.graph.tensors[self.graph.bound[tensor.index].id]
        if is_quantized(tensor):
            integers = Tensor(next(self.graph.ids), tensor.name, value.shape, tensor.dtype)
            return self.graph.add_map(value, integers, quantize_op(grid_of(tensor))).id
        return self.graph.written(value).id

    def _entry(self, operator: Operator) -> Entry:
        names = [self.subgraph.tensors[t].name if t >= 0 else "" for t in (*operator.inputs, *operator.outputs)]
        reasons = self._lower(operator)
        if self.sizes is not None and (reasons or operator.index in self.calls):
            raise Refused(f"operator {operator.index} {operator.code}: {' '.join(reasons)}")
        cpu_reasons: tuple[str, ...] = ()
        if reasons:  # its results stay unknown values, so that later operators can still be judged
            try:
                shapes = self._shapes_on_cpu(operator)
            except UnsupportedError as error:
                shapes, cpu_reasons = [None] * len(operator.outputs), error.reasons
            for index, shape in zip(operator.outputs, shapes, strict=True):
                self.open.update([index] if shape is None else ())
                target = self.subgraph.tensors[index]
                self.graph.bind(index, self.graph.tensor(target if shape is None else replace(target, shape=shape)))
        split = len(operator.inputs)
        inputs, outputs = tuple(names[:split]), tuple(names[split:])
        notes = self.notes.get(operator.index, ())
        known_as = operator.index, operator.code, operator.version
        return Entry(*known_as, inputs, outputs, tuple(reasons), notes, operator.is_custom, cpu_reasons)

    def _shapes_on_cpu(self, operator: Operator) -> Sequence[Shape | None]:
        """Return the shapes of its results; None for each that a run decides. UnsupportedError if LiteRT cannot
        either."""
        known = [None if t in self.open else self.graph.read(t) for t in operator.inputs]
        if obstacles := [*cpu_obstacles(operator, known, self.subgraph, self.model.subgraphs)]:
            raise UnsupportedError(obstacles)
        if not self.open.isdisjoint(operator.inputs) or (operator.is_custom and operator.code not in KNOWN_CUSTOM):
            return [None] * len(operator.outputs)
        if self.subgraph.is_left_to_litert:
            declared = (self.subgraph.tensors[t] for t in operator.outputs)
            return [None if self.is_resized or -1 in t.signature else t.shape for t in declared]
        if self.infer is None:
            return [self.subgraph.tensors[t].shape for t in operator.outputs]
        return self.infer(self.entry.subgraph, self.subgraph, operator, known)

    def _lower(self, operator: Operator) -> list[str]:
        """Add an operator to the graph. Returns why the device cannot run it; then nothing is added."""
        with internal_faults(f"lowering operator {operator.index} {operator.code}"):
            return self._lowered(operator)

    def _lowered(self, operator: Operator) -> list[str]:
        unsized = [self.subgraph.tensors[t].name for t in operator.inputs if t in self.open]
        if unsized and (operator.code in KNOWN_WITHOUT_DECLARATION or find_operator(operator.code)[0] is not None):
            return [f"the shape of its input {name!r} is known only at run time" for name in dict.fromkeys(unsized)]
        opens = (self.sizes.of(self.graph.read(t)) for t in operator.inputs) if self.sizes is not None else ()
        if operator.code in KNOWN_WITHOUT_DECLARATION and any(opens):
            return ["the shape of an input is known only at run time"]
        if operator.obstacle:
            return [operator.obstacle]
        if operator.code in VARIABLE_OPERATORS:
            return []
        if operator.code in CONTROL_FLOW:
            return self._call(operator)
        if operator.code == "DENSIFY" and all(self.subgraph.tensors[t].data is not None for t in operator.outputs):
            return []
        site = self._site(operator)
        if (data := evaluated(operator, site)) is not None:
            target = self.subgraph.tensors[operator.outputs[0]]
            value = Tensor(next(self.graph.ids), target.name, data.shape, data.dtype.name, data)
            self._bind_result(operator, value, target)
            return []
        op, failures = find_operator(operator.code)
        if self.sizes is not None and operator.code in SIZED:
            if misfits := op.misfits(site) if op else []:
                return misfits
            emitter = Emitter(self.graph.ids, self.graph.source_of(operator))
            results = SIZED[operator.code](SizedOperation(site, emitter, self.sizes))
            if results is not None:
                return self._add(operator, site, emitter, results)
        if op is None:
            if operator.is_custom and operator.code not in KNOWN_CUSTOM:
                return [f"custom operator {operator.code!r} is known neither to tflgpu nor to LiteRT", *failures]
            return [f"{operator.code} has no kernel for the device"]
        reasons = [*op.obstacles(site), *site_reasons(site, self.missing_types)]
        if self.is_called and COMPLEX in site.output_types:
            reasons = reasons or ["it gives complex numbers in a loop or branch"]
        reasons = reasons or [*mixture_reasons(operator, self.subgraph.tensors)]
        if not reasons:
            emitter = Emitter(self.graph.ids, self.graph.source_of(operator))
            rule = rule_for(site, self.missing_types)
            exact = rule(site, emitter) if rule is not None else None
            emitted = op.emit(site, emitter) if exact is None else exact
            reasons = self._add(operator, site, emitter, emitted, on_grid=exact is not None)
        if self.choices.checks and not reasons:
            self.graph.add_checks(operator, op.checks, site)
        return reasons

    def _call(self, operator: Operator) -> list[str]:
        """Lower an operator that calls subgraphs, into this graph or as pieces apart from it; returns the obstacle."""
        wanted = {t for o in self.subgraph.operators for t in o.inputs} | {t.index for _, t in self.entry.outputs}
        wanted |= {use.after for use in self.entry.variables if use.after is not None}
        apart = None if self.is_called or self.choices.checks else self.calls  # checks need one graph
        lowering = self._callee, self._separate, self._lower_parts if self.parted_loops else None
        if obstacle := lower_call(operator, self.graph, self.model, *lowering, wanted, apart):
            return [obstacle]
        self._compare_shapes(operator.outputs)
        return []

    def _compare_shapes(self, indices: Sequence[int]) -> None:
        """Believe no shapes any more if those of these tensors are other than declared.

        TFLite computes shapes anew, and converters leave [1, 1] in the file.
        """
        if any(self._declared(t) not in (None, self.graph.bound[t].shape) for t in indices):
            self.believes_shapes = False

    def _separate(self, subgraph: Subgraph, outer: GraphBuilder | None = None) -> Callee:
        """Return what lowers a subgraph into a graph of its own, or into that of ``outer``."""
        nested = self._nested(subgraph, outer)
        nested._bind_constants()

        def lower(operator: Operator) -> list[str]:
            nested.believes_shapes &= self.believes_shapes
            nested._compare_shapes(subgraph.inputs)
            return nested._lower(operator)

        return Callee(subgraph, nested.graph, lower, self.budget)

    def _nested(self, subgraph: Subgraph, outer: GraphBuilder | None = None) -> _Lowering:
        """Lower another subgraph; into the same graph if ``outer`` is its builder."""
        model = replace(self.model, subgraphs=(*self.model.subgraphs, subgraph))
        entry = EntryPoint(len(self.model.subgraphs), subgraph.operators, (), ())
        choices = replace(self.choices, shapes={}, grids={})
        return _Lowering(model, entry, choices, None, outer=outer, caller=self)

    def _lower_parts(
        self, operator: Operator, number: int, values: Mapping[int, Tensor], outputs: Sequence[int]
    ) -> tuple[tuple[BodyPart, ...], list[tuple[Shape, str]]] | str:
        """Return a subgraph as parts for the device, and the shapes and types of its outputs; or why it cannot be
        that."""
        subgraph = self.model.subgraphs[number]
        if obstacle := next((o.obstacle for o in subgraph.operators if o.obstacle), ""):
            return obstacle
        if refusal := self.budget.take(subgraph):
            return refusal
        given = tuple(t for t, value in values.items() if not value.is_constant)
        inputs, results = (tuple((f"{t}", subgraph.tensors[t]) for t in side) for side in (given, outputs))
        entry = EntryPoint(number, subgraph.operators, inputs, results)

        def lowering(part: EntryPoint, whole: Lowered | None) -> Lowered:
            shapes = {t: value.shape for t, value in values.items()}
            choices = replace(self.choices, shapes=shapes, grids={}, checks=False)
            nested = _Lowering(self.model, part, choices, None, whole, caller=self)
            nested.is_called, nested.graph.caller = False, operator.index
            for index, value in values.items():
                if value.is_constant:
                    nested.graph.bind(index, replace(value, id=next(nested.graph.ids)))
            return nested.run()

        whole = lowering(entry, None)
        if whole.obstacles:
            return whole.obstacles[0]
        parts: list[BodyPart] = []
        try:
            cut = partition(subgraph, whole.capable, given, outputs, whole.known, whole.calls)
        except UnsupportedError as error:
            return error.reasons[0]
        for each in cut:
            call = next((whole.calls[i] for i in each.operators if i in whole.calls), None)
            if call is not None:
                parts.append(BodyPart(each, call, call.pieces))
                continue
            part = lowering(entry.partition(subgraph, each), whole)
            if part.obstacles:
                return part.obstacles[0]
            piece = LoweredPiece(part.graph, each.inputs, each.outputs, tuple(part.output_types))
            parts.append(BodyPart(each, None, (piece,)))
        return tuple(parts), [(whole.bound[t].shape, whole.bound[t].dtype) for t in outputs]

    def _callee(self, index: int) -> Callee:
        """Return what lowers a subgraph into this graph. Its constants stay the same, however often it is called."""
        if index not in self.called:
            self.called[index] = self._separate(self.model.subgraphs[index], self.graph)
        return self.called[index]

    def _site(self, operator: Operator) -> Site:
        return Site(
            operator.index,
            operator.code,
            operator.version,
            tuple(self._operand(operator, place) for place in range(len(operator.inputs))),
            tuple(map(self._declared, operator.outputs)),
            tuple(view_dtype(self.subgraph.tensors[t]) for t in operator.outputs),
            tuple(map(self._grid, operator.inputs)),
            tuple(map(self._grid, operator.outputs)),
            {"custom_options": operator.custom_options} if operator.is_custom else operator.options,
            resized=self.is_resized,
            called=tuple(self.model.subgraphs[number] for number in called_by(operator)),
            stored=tuple(self.subgraph.tensors[t].data if t >= 0 else None for t in operator.inputs),
            intermediate_grids=tuple(map(self._grid, operator.intermediates)),
        )

    def _operand(self, operator: Operator, place: int) -> Tensor | None:
        """Return an input of an operator; a bias whose written scale means nothing is one of its own."""
        bias = self.biases.get(operator.index)
        if bias is None or place != bias_position(operator):
            return self.graph.read(operator.inputs[place])
        tensor = self.graph.tensor(bias)
        self.graph.tensors[tensor.id] = tensor
        return tensor

    def _declared(self, index: int) -> Shape | None:
        """Return the shape that the file declares of a tensor; None if it leaves it open, or is not to be believed."""
        tensor = self.subgraph.tensors[index]
        return tensor.shape if self.believes_shapes and -1 not in tensor.signature and tensor.shape else None

    def _grid(self, index: int) -> Grid | None:
        """Return what rounds a tensor of an operator, if anything does."""
        tensor = self.subgraph.tensors[index] if index >= 0 else None
        return grid_of(tensor) if self.rounds and tensor is not None and has_grid(tensor) else None

    def _add(
        self,
        operator: Operator,
        site: Site,
        emitter: Emitter,
        emitted: Tensor | Sequence[Tensor],
        *,
        on_grid: bool = False,
    ) -> list[str]:
        """Add what an operator emitted, and bind its results. on_grid: whether they are rounded already.

        Returns obstacles that only this shows; then nothing is added.
        """
        if self.sizes is not None:
            self.sizes.follow(emitter, self.graph.tensors)
        if emitter.makes_something_of_nothing:
            return ["its result has elements, but its input has none"]
        if limits := [*result_reasons(emitter.tensors, self.missing_types), *growth_reasons(site, emitter.tensors)]:
            return limits
        results = (emitted,) if isinstance(emitted, Tensor) else tuple(emitted)
        where = f"operator {operator.index} {operator.code}"
        if len(results) != len(operator.outputs):
            raise ModelError(f"{where} has {len(operator.outputs)} outputs; {len(results)} were expected")
        grids = (*site.input_grids, *site.output_grids)
        self.graph.add_nodes(emitter, precise=any(grid is not None and grid.outgrows_half for grid in grids))
        if self.sizes is not None:
            self.graph.tensors.update(
                (t.id, t) for t in self.sizes.constants(self.graph.tensors[r.id] for r in results)
            )
        for index, result in zip(operator.outputs, results, strict=True):
            target = self.subgraph.tensors[index]
            if result.dtype != view_dtype(target):
                raise ModelError(f"{where} gives {result.dtype} values, but the file declares {target.dtype}")
            value = self.graph.tensors[result.id]
            held = replace(value, name=target.name) if on_grid else self._held(operator, value, target)
            self._bind_result(operator, held, target)
        for position, value in emitter.assigned.items():
            target = self.subgraph.tensors[operator.inputs[position]]
            self.graph.bind(target.index, self._held(operator, self.graph.tensors[value.id], target))
        self._compare_shapes(operator.outputs)
        return []

    def _bind_result(self, operator: Operator, value: Tensor, target: FileTensor) -> None:
        """Let ``value`` be what an operator gives for ``target``.

        LiteRT runs some operators once where their input is a constant: they give a variable its first value.
        """
        if target.is_variable and operator.code in EVALUATORS and value.is_constant:
            value = self.graph.variables.start(target.index, target, first=value.data)
        self.graph.bind(target.index, value)

    def _held(self, operator: Operator, result: Tensor, target: FileTensor) -> Tensor:
        """Return ``result`` under the file's name: if it is quantized there, rounded to its grid or clamped to its
        range."""
        op = hold_op(operator, [self.subgraph.tensors[i] for i in operator.inputs if i >= 0], target, self.rounds)
        if op is not None and op.function == "clamp" and self._quantizes_an_input(operator):
            low, high = op.parameters
            self.notes[operator.index] = (UNCLAMPED.format(name=target.name, low=low, high=high),)
            op = None
        if op is None:
            return replace(result, name=target.name)
        held = Tensor(next(self.graph.ids), target.name, result.shape, precise=result.precise)
        if self.sizes is not None:
            self.sizes.open[held.id] = self.sizes.of(result)
        return self.graph.add_map(result, held, op, operator=self.graph.source_of(operator))

    def _quantizes_an_input(self, operator: Operator) -> bool:
        """Whether the operator is the QUANTIZE of what callers give: not of what a loop or another partition does."""
        given = {t.index for _, t in self.entry.inputs}.intersection(self.subgraph.inputs)
        return operator.code == "QUANTIZE" and operator.inputs[0] in given
