"""Model -> Graph: operators become nodes, constants are evaluated, every obstacle is collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from types import MappingProxyType

import numpy as np

from tflgpu.errors import ModelError
from tflgpu.frontend.entry_point import EntryPoint, entry_point
from tflgpu.frontend.lowered import KNOWN_CUSTOM, Entry, Lowered
from tflgpu.frontend.variables import VARIABLE_OPERATORS, Variables
from tflgpu.graph.ir import Array, EpilogueOp, Graph, Node, State, Tensor, remove_dead
from tflgpu.graph.layout import Shape
from tflgpu.model.model import FileTensor, Model, Operator
from tflgpu.model.quantization import (
    KEEPS_QUANTA,
    Grid,
    dequantize_op,
    dequantized,
    grid_of,
    is_quantized,
    quantize_op,
    simulate_op,
    view_dtype,
)
from tflgpu.ops import REGISTRY, Emit, Emitter, Site
from tflgpu.ops.evaluate import value_of

# Operators of nothing but constants that the lowering computes itself. Their results are weights and shapes.
EVALUATORS: dict[str, Callable[..., Array]] = {
    "DENSIFY": lambda x: x,  # sparse constants are dense since the file was read
    "DEQUANTIZE": lambda x: x.astype(np.float32),
}


def lower(
    model: Model,
    entry: EntryPoint | None = None,
    *,
    simulate: bool = True,
    shapes: Mapping[int, Shape] = MappingProxyType({}),
    grids: Mapping[int, Grid] = MappingProxyType({}),
) -> Lowered:
    """Lower an entry point of ``model``, by default :func:`entry_point`'s default.

    simulate: round every quantized activation to the values its type can hold, as integer kernels would.
    shapes: shapes of inputs that replace the file's, by the file's tensor index; what the file declares of any other
        tensor's shape is then not believed.
    grids: float inputs that callers give as integers, by the file's tensor index.
    Raises ModelError where the model contradicts itself.
    """
    entry = entry or entry_point(model)
    return _Lowering(model, entry, simulate, shapes, grids).run()


class _Lowering:
    def __init__(
        self,
        model: Model,
        entry: EntryPoint,
        simulate: bool,
        shapes: Mapping[int, Shape],
        grids: Mapping[int, Grid],
    ) -> None:
        self.model = model
        self.subgraph = model.subgraphs[entry.subgraph]
        self.entry = entry
        self.simulate = simulate
        self.shapes = shapes
        self.grids = grids
        self.ids = count()
        self.env: dict[int, Tensor] = {}  # tensor of the file -> tensor of the graph
        self.variables = Variables(self.ids)
        self.tensors: dict[int, Tensor] = {}
        self.nodes: list[Node] = []

    def run(self) -> Lowered:
        for tensor in self.subgraph.tensors:
            if tensor.data is not None:
                self._bind(tensor.index, self._tensor(tensor))
        inputs = tuple(self._input(t) for _, t in self.entry.inputs)
        entries = tuple(self._entry(o) for o in self.entry.operators)
        for _, tensor in self.entry.outputs:
            if tensor.dtype == "resource":
                raise ModelError(f"output {tensor.name!r} is the handle of a variable, which has no value")
            self._read(tensor.index)  # perhaps a variable tensor that no operator touches
        states = tuple(self._states())
        outputs = tuple(self._output(t) for _, t in self.entry.outputs)
        graph = Graph(self.tensors, tuple(self.nodes), inputs, outputs, states)
        return Lowered(remove_dead(graph), entries, self.entry.inputs, self.entry.outputs)

    def _tensor(self, tensor: FileTensor) -> Tensor:
        """A tensor of the graph in the float view: quantized constants as the numbers they stand for."""
        data = tensor.data
        if data is not None and data.shape != tensor.shape:
            data = None  # strings and packed numbers: nothing here can read them
        if data is not None and is_quantized(tensor):
            data = dequantized(tensor)
        precise = is_quantized(tensor) and grid_of(tensor).outgrows_half
        return Tensor(next(self.ids), tensor.name, tensor.shape, view_dtype(tensor), data, precise)

    def _input(self, tensor: FileTensor) -> int:
        """Bind a graph input; integers that stand for numbers become these in the first node that touches them."""
        tensor = replace(tensor, shape=self.shapes.get(tensor.index, tensor.shape))
        grid = grid_of(tensor) if is_quantized(tensor) else self.grids.get(tensor.index)
        given = replace(self._tensor(tensor), dtype=grid.dtype if grid else tensor.dtype)
        self.tensors[given.id] = given
        if grid:
            seen = replace(self._tensor(tensor), data=None)
            self._bind(tensor.index, self._map(given, seen, dequantize_op(grid)))
        else:
            self.env[tensor.index] = given
        return given.id

    def _output(self, tensor: FileTensor) -> int:
        value = self.tensors[self.env[tensor.index].id]
        if not is_quantized(tensor):
            # A graph output is written by a node, even if its value is known.
            return self._map(value, replace(value, id=next(self.ids), data=None)).id if value.is_constant else value.id
        return self._map(
            value, Tensor(next(self.ids), tensor.name, value.shape, tensor.dtype), quantize_op(grid_of(tensor))
        ).id

    def _states(self) -> Iterator[State]:
        """The variables whose value at the start of a run matters. One that nothing assigns is a constant."""
        for variable in self.variables.known.values():
            start, value = variable.start, variable.value
            if start is None or value is None:
                continue
            if value.id == start.id:
                first = np.zeros(start.shape, start.dtype) if variable.initial is None else variable.initial
                self.tensors[start.id] = replace(start, data=first)
                continue
            if value.shape != start.shape:
                shapes = f"{list(start.shape)} takes a value of shape {list(value.shape)}"
                raise ModelError(f"variable {variable.name!r} of shape {shapes}")
            # Rounding to half precision in every run would add up.
            self.tensors[value.id] = value = replace(self.tensors[value.id], precise=True)
            # The value may also be a constant, an input, an output or another variable's: the state gets a copy, which
            # fuses into the node that computes the value if the state alone wants it.
            written = self._map(value, replace(start, id=next(self.ids)))
            yield State(variable.name, start.id, written.id, variable.initial)

    def _map(self, source: Tensor, result: Tensor, *epilogue: EpilogueOp, operator: int | None = None) -> Tensor:
        """Add an elementwise node from ``source`` to ``result``."""
        self.tensors[result.id] = result
        sources = () if operator is None else (operator,)
        self.nodes.append(Node("map", (source.id,), result.id, None, epilogue, sources))
        return result

    def _bind(self, index: int, tensor: Tensor) -> None:
        self.env[index] = tensor
        self.tensors[tensor.id] = tensor
        self.variables.assign_tensor(index, tensor)

    def _read(self, index: int) -> Tensor | None:
        """An input of an operator; None if it is absent. Variable tensors and empty constants come into being here."""
        if index >= 0 and index not in self.env:
            tensor = self.subgraph.tensors[index]
            self._bind(index, self.variables.read_tensor(tensor) if tensor.is_variable else self._tensor(tensor))
        return self.env[index] if index >= 0 else None

    def _entry(self, operator: Operator) -> Entry:
        names = [self.subgraph.tensors[t].name if t >= 0 else "" for t in (*operator.inputs, *operator.outputs)]
        reasons = self._lower(operator)
        if reasons:  # its results stay unknown values, so that later operators can still be judged
            for index in operator.outputs:
                self._bind(index, self._tensor(self.subgraph.tensors[index]))
        split = len(operator.inputs)
        inputs, outputs = tuple(names[:split]), tuple(names[split:])
        code, version = operator.code, operator.version
        return Entry(operator.index, code, version, inputs, outputs, tuple(reasons), operator.is_custom)

    def _lower(self, operator: Operator) -> list[str]:
        if operator.code in VARIABLE_OPERATORS:
            return list(self._use_variables(operator))
        site = self._site(operator)
        if self._evaluate(operator, site):
            return []
        op = REGISTRY.get(operator.code)
        if op is None:
            if operator.is_custom and operator.code not in KNOWN_CUSTOM:
                return [f"custom operator {operator.code!r} is known neither to tflgpu nor to LiteRT"]
            return [f"{operator.code} has no kernel for the device"]
        reasons = op.obstacles(site)
        if not reasons:
            self._emit(operator, op.emit, site)
        return reasons

    def _use_variables(self, operator: Operator) -> Iterator[str]:
        """Do one of the operators of variables; yields the obstacles."""
        wanted, found = VARIABLE_OPERATORS[operator.code], (len(operator.inputs), len(operator.outputs))
        if found != wanted or -1 in operator.inputs:
            yield f"it has {found[0]} inputs and {found[1]} outputs where {wanted[0]} and {wanted[1]} are expected"
            return
        tensors = [self.subgraph.tensors[t] for t in (*operator.inputs, *operator.outputs)]
        match operator.code:
            case "VAR_HANDLE":
                self.variables.define_handle(operator)
            case "READ_VARIABLE":
                value = self.variables.read(tensors[0].index, tensors[1])
                if isinstance(value, str):
                    yield value
                else:
                    self._bind(tensors[1].index, replace(value, name=tensors[1].name))
            case "ASSIGN_VARIABLE":
                source = self._read(tensors[1].index)
                assert source is not None
                refusal = self.variables.assign(tensors[0].index, source, tensors[1])
                if refusal is not None:
                    yield refusal
            case "CALL_ONCE":
                yield from self._call_once(operator.options.get("init_subgraph_index", 0))

    def _call_once(self, index: int) -> Iterator[str]:
        """Lower the subgraph that gives variables their first values, all of which must be known now."""
        if not 0 < index < len(self.model.subgraphs):
            raise ModelError(f"a CALL_ONCE calls subgraph {index} of {len(self.model.subgraphs)}")
        operators = self.model.subgraphs[index].operators
        if any(o.code == "CALL_ONCE" for o in operators):
            yield f"its subgraph {index} has a CALL_ONCE of its own"
            return
        first = _Lowering(self.model, EntryPoint(index, operators, (), ()), self.simulate, {}, {})
        obstacles = first.run().obstacles
        yield from (f"in its subgraph {index}, {obstacle}" for obstacle in obstacles)
        if not obstacles:
            yield from self.variables.initialize(first.variables)

    def _site(self, operator: Operator) -> Site:
        def open_or_declared(tensor: FileTensor) -> Shape | None:
            unknown = self.shapes or -1 in tensor.signature or not tensor.shape
            return None if unknown else tensor.shape

        return Site(
            operator.index,
            operator.code,
            operator.version,
            tuple(self._read(t) for t in operator.inputs),
            tuple(open_or_declared(self.subgraph.tensors[t]) for t in operator.outputs),
            tuple(view_dtype(self.subgraph.tensors[t]) for t in operator.outputs),
            tuple(map(self._grid, operator.inputs)),
            tuple(map(self._grid, operator.outputs)),
            {"custom_options": operator.custom_options} if operator.is_custom else operator.options,
            resized=bool(self.shapes),
        )

    def _grid(self, index: int) -> Grid | None:
        """What rounds a tensor of an operator, if anything does."""
        tensor = self.subgraph.tensors[index] if index >= 0 else None
        return grid_of(tensor) if self.simulate and tensor is not None and is_quantized(tensor) else None

    def _evaluate(self, operator: Operator, site: Site) -> bool:
        """Compute an operator whose inputs are all constants, if there is an evaluator for it."""
        values = [site.constant(i) for i in range(len(site.inputs))]
        evaluator = EVALUATORS.get(operator.code)
        if evaluator is None or len(operator.outputs) != 1 or not values or any(v is None for v in values):
            return False
        if any(t is None or t.dtype not in ("float16", "float32") for t in site.inputs):
            return False
        target = self.subgraph.tensors[operator.outputs[0]]
        data = evaluator(*values)
        self._bind(target.index, Tensor(next(self.ids), target.name, tuple(data.shape), data.dtype.name, data))
        return True

    def _emit(self, operator: Operator, emit: Emit, site: Site) -> None:
        emitter = Emitter(self.ids, operator.index)
        emitted = emit(site, emitter)
        results = (emitted,) if isinstance(emitted, Tensor) else tuple(emitted)
        where = f"operator {operator.index} {operator.code}"
        if len(results) != len(operator.outputs):
            raise ModelError(f"{where} has {len(operator.outputs)} outputs; {len(results)} were expected")
        self._add(emitter, any(g is not None and g.outgrows_half for g in (*site.input_grids, *site.output_grids)))
        for index, result, declared in zip(operator.outputs, results, site.output_shapes, strict=True):
            target = self.subgraph.tensors[index]
            if declared is not None and declared != result.shape:
                raise ModelError(
                    f"{where} gives shape {list(result.shape)} for its inputs, but the file declares {list(declared)}"
                )
            if result.dtype != view_dtype(target):
                raise ModelError(f"{where} gives {result.dtype} values, but the file declares {target.dtype}")
            self._bind(target.index, self._rounded(operator, self.tensors[result.id], target))
        for position, value in emitter.assigned.items():
            target = self.subgraph.tensors[operator.inputs[position]]
            self._bind(target.index, self._rounded(operator, self.tensors[value.id], target))

    def _add(self, emitter: Emitter, precise: bool) -> None:
        """Add an operator's nodes. What constants alone decide is computed: later operators may need to know it."""
        self.tensors |= {t.id: replace(t, precise=precise or t.precise) for t in emitter.tensors}
        for node in emitter.nodes:
            output = self.tensors[node.output]
            value = value_of(node, [self.tensors[i] for i in node.inputs], output)
            if value is None:
                self.nodes.append(node)
            else:
                self.tensors[output.id] = replace(output, data=value)

    def _rounded(self, operator: Operator, result: Tensor, target: FileTensor) -> Tensor:
        """``result`` under the file's name, and simulated if the file has it quantized."""
        if not self.simulate or not is_quantized(target) or operator.code in KEEPS_QUANTA:
            return replace(result, name=target.name)
        simulated = Tensor(next(self.ids), target.name, result.shape, precise=result.precise)
        return self._map(result, simulated, simulate_op(grid_of(target)), operator=operator.index)
