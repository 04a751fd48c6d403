"""The graph of one subgraph while it is lowered: its tensors by those of the file, and the values that it keeps.

Values that a model keeps are *resource variables*, which :mod:`tflgpu.frontend.resource_variables` has made values;
inputs that callers bind to outputs; and *variable tensors*: tensors with a flag, which keep their value from run to run
and are zeros at first.

A graph has none of these: what has the value at the end of a run is where the next one starts
(:class:`tflgpu.graph.ir.State`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import numpy as np

from tflgpu.errors import ModelError
from tflgpu.graph.ir import Array, Deferred, EpilogueOp, Node, State, Tensor, TensorId
from tflgpu.model.model import FileTensor, Operator, Subgraph
from tflgpu.model.quantization import dequantized, grid_of, has_grid, is_quantized, scale_of, view_dtype
from tflgpu.ops import Check, Emitter, Site
from tflgpu.ops.arithmetic.reduction import reduce_node
from tflgpu.ops.declaration import Checks
from tflgpu.ops.evaluate import value_of
from tflgpu.ops.movement.indexing import Gather

EVALUATORS: dict[str, Callable[..., Array]] = {
    "DENSIFY": lambda x: x,  # into a variable: any other result is a constant of the subgraph
    "DEQUANTIZE": lambda x: x.astype(np.float32),
}


def evaluated(operator: Operator, site: Site) -> Array | None:
    """Return the result of an operator whose inputs are all constants, if there is an evaluator for it."""
    values = [site.constant(i) for i in range(len(site.inputs))]
    evaluator = EVALUATORS.get(operator.code)
    if evaluator is None or len(operator.outputs) != 1 or not values or any(v is None for v in values):
        return None
    if any(t is None or t.dtype not in ("float16", "float32") for t in site.inputs):
        return None
    return evaluator(*values)


Key = str | int  # a resource variable's key, a variable tensor's or a bound input's index


@dataclass
class Variable:
    """Facts about one variable that are known so far.

    start: its value at the start of a run. value: its value now. initial: its first value in the float view, None for
    zeros. held: whether callers hold its memory. precise: whether it is kept in float in any case.
    """

    name: str
    start: Tensor
    value: Tensor
    initial: Array | None = None
    held: bool = False
    precise: bool = False


class Variables:
    """The variables of one subgraph."""

    def __init__(self, ids: Iterator[int]) -> None:
        self.known: dict[Key, Variable] = {}
        self._ids = ids

    def start(
        self,
        key: Key,
        form: FileTensor,
        *,
        first: Array | None = None,
        held: bool = False,
        precise: bool = False,
    ) -> Tensor:
        """Return the value that a variable has at the start of a run.

        Args:
            key: Of the variable.
            form: A tensor of its shape, element type and quantization.
            first: The value at the start of the first run, by default zeros.
            held: Whether callers hold its memory.
            precise: Whether it is kept in float in any case.
        """
        start = Tensor(next(self._ids), form.name, form.shape, view_dtype(form), precise=True)
        self.known[key] = Variable(form.name, start, start, first, held, precise)
        return start

    def assign(self, key: Key, value: Tensor) -> None:
        """Let a variable have a value from now on.

        Args:
            key: The variable's; nothing happens for a tensor of the file that is no variable.
            value: A tensor of the graph.
        """
        if key in self.known:
            self.known[key].value = value


def first_value(tensor: FileTensor) -> Array | None:
    """Return the numbers that a variable tensor begins with; None for zeros.

    LiteRT fills it with zero bytes, in int8 with the zero point.

    Args:
        tensor: A variable tensor of the file.
    """
    if not is_quantized(tensor) or tensor.dtype == "int8":
        return None
    return dequantized(replace(tensor, data=np.zeros(tensor.shape, tensor.dtype)))


DEFERRED = 1 << 14  # elements of a quantized constant from which on its numbers are computed where they are read


class GraphBuilder:
    """Tensors and nodes so far, and the variables.

    bound: tensor of the file -> tensor of the graph that holds its value now.
    checks: what the operators of the entry point and of what it calls must not find.
    caller: the operator of the entry point that calls this subgraph; None for the entry point's own.
    """

    def __init__(self, subgraph: Subgraph, outer: GraphBuilder | None = None) -> None:
        """outer: the builder of an operator that calls this subgraph. Both add to one graph."""
        self.subgraph = subgraph
        self.ids: Iterator[int] = outer.ids if outer else count()
        self.caller: int | None = None
        self.bound: dict[int, Tensor] = {}
        self.variables = Variables(self.ids)
        self.tensors: dict[int, Tensor] = outer.tensors if outer else {}
        self.nodes: list[Node] = outer.nodes if outer else []
        self.checks: list[Check] = outer.checks if outer else []

    def source_of(self, operator: Operator) -> int:
        """Return the operator of the entry point that ``operator`` is a part of."""
        return operator.index if self.caller is None else self.caller

    def tensor(self, tensor: FileTensor) -> Tensor:
        """Return a new tensor of the graph in the float view: quantized constants as the numbers they stand for.

        Args:
            tensor: A tensor of the file.
        """
        data: Array | Deferred | None = tensor.data
        scale = None
        if tensor.data is not None and is_quantized(tensor):
            scale = scale_of(tensor)
            is_large = tensor.size >= DEFERRED
            data = Deferred(partial(dequantized, tensor), 4 * tensor.size) if is_large else dequantized(tensor)
        elif tensor.data is not None and tensor.data.shape != tensor.shape:
            data = None  # strings and packed numbers: nothing here can read them
        precise = has_grid(tensor) and grid_of(tensor).outgrows_half
        return Tensor(next(self.ids), tensor.name, tensor.shape, view_dtype(tensor), data, precise, scale)

    def bind(self, index: int, tensor: Tensor) -> None:
        """Let a tensor be the value of one of the file from now on.

        Args:
            index: The tensor's in the file.
            tensor: A tensor of the graph.
        """
        self.bound[index] = tensor
        self.tensors[tensor.id] = tensor
        self.variables.assign(index, tensor)

    def begin_call(self) -> None:
        """Give variable tensors their first values, as LiteRT does in each call of a subgraph."""
        for tensor in self.subgraph.tensors:
            if tensor.is_variable:
                first = first_value(tensor)
                zeros = np.zeros(tensor.shape, view_dtype(tensor))
                self.bind(tensor.index, replace(self.tensor(tensor), data=zeros if first is None else first))

    def read(self, index: int) -> Tensor | None:
        """Return an input of an operator; None if it is absent.

        Variable tensors and empty constants come into being here.

        Args:
            index: The tensor's in the file; -1 for an absent one.
        """
        if index >= 0 and index not in self.bound:
            tensor = self.subgraph.tensors[index]
            if tensor.is_variable:
                self.bind(index, self.variables.start(index, tensor, first=first_value(tensor)))
            else:
                self.bind(index, self.tensor(tensor))
        return self.bound[index] if index >= 0 else None

    def add_map(self, source: Tensor, result: Tensor, *epilogue: EpilogueOp, operator: int | None = None) -> Tensor:
        """Add an elementwise node, and return its result.

        Args:
            source: The node's first value.
            result: The node's output, with an id of its own.
            *epilogue: The node's ops.
            operator: The operator that the node computes; None for none.
        """
        self.tensors[result.id] = result
        sources = () if operator is None else (operator,)
        self.nodes.append(Node("map", (source.id,), result.id, None, epilogue, sources))
        return result

    def add_nodes(self, emitter: Emitter, *, precise: bool) -> None:
        """Add an operator's nodes. What constants alone decide is computed: later operators may need to know it.

        Args:
            emitter: Has the nodes.
            precise: Whether all of its tensors are kept in float.
        """
        self.tensors |= {t.id: t.changed(precise=precise or t.precise) for t in emitter.tensors}
        self._keep(emitter.kept)
        for node in emitter.nodes:
            output = self.tensors[node.output]
            if output.size == 0:
                value: Array | None = np.zeros(output.shape, output.dtype)
            else:
                value = value_of(node, [self.tensors[i] for i in node.inputs], output)
            if value is None:
                self.nodes.append(node)
            else:
                self.tensors[output.id] = replace(output, data=value)

    def _keep(self, kept: set[int]) -> None:
        """Mark tensors as precise, and those whose elements nodes without an epilogue only move to them."""
        kept = set(kept)
        for node in reversed(self.nodes if kept else []):
            if node.output in kept and not node.epilogue and node.kind in ("gather", "rearrange", "reshape", "strided"):
                kept.add(node.inputs[0])
        self.tensors |= {i: self.tensors[i].changed(precise=True) for i in kept}

    def add_checks(self, operator: Operator, checks: Checks, site: Site) -> None:
        """Add what finds faults in the numbers that an operator reads."""
        emitter, name = Emitter(self.ids, self.source_of(operator)), self.subgraph.tensors[operator.outputs[0]].name
        for check in checks(site, emitter):
            found = reduce_node(emitter, check.found, "any", tuple(range(len(check.found.shape))))
            self.checks.append(Check(found, f"operator {operator.index} {operator.code} ({name!r}): {check.fault}"))
        self.add_nodes(emitter, precise=False)

    def written(self, output: Tensor) -> Tensor:
        """Return a tensor as an output of the graph: a node writes it, even if its value is known.

        Args:
            output: A tensor of the graph.
        """
        value = self.tensors[output.id]
        return (
            self.add_map(value, replace(value, id=next(self.ids), data=None, scale=None))
            if value.is_constant
            else value
        )


def states_of(graph: GraphBuilder) -> Iterator[State]:
    """Yield the variables that have another value after a run, and those that callers hold.

    A variable that nothing assigns becomes a constant.

    Args:
        graph: Is complete, but for its states.

    Raises:
        ModelError: A variable would change its shape.
    """
    for variable in graph.variables.known.values():
        start, value = graph.tensors.get(variable.start.id, variable.start), variable.value
        graph.tensors[start.id] = start
        if value.id == start.id and variable.held:
            yield State(variable.name, start.id, start.id, variable.initial, True)
            continue
        if value.id == start.id:
            first = np.zeros(start.shape, start.dtype) if variable.initial is None else variable.initial
            graph.tensors[start.id] = replace(start, data=first)
            continue
        if (value.shape, value.dtype) != (start.shape, start.dtype):
            forms = f"{start.dtype}{list(start.shape)} takes a value of {value.dtype}{list(value.shape)}"
            raise ModelError(f"variable {variable.name!r} of {forms}")
        # A state that is computed from its last value would be rounded to half precision again in every run. Elements
        # that only take the place of others, as those of a cache of keys and values, are rounded once.
        is_precise = variable.precise or graph.tensors[value.id].precise
        precise = is_precise or not replaces_elements(graph, value.id, start.id)
        for tensor in (start.id, value.id):
            graph.tensors[tensor] = replace(graph.tensors[tensor], precise=precise)
        start, value = graph.tensors[start.id], graph.tensors[value.id]
        # The value may also be a constant, an input, an output or another variable's: the state gets a copy, which
        # fuses into the node that computes the value if the state alone wants it.
        written = graph.add_map(value, replace(start, id=next(graph.ids)))
        yield State(variable.name, start.id, written.id, variable.initial, variable.held)


def replaces_elements(graph: GraphBuilder, value: TensorId, start: TensorId) -> bool:
    """Tell whether a state's next value is its last value with some elements replaced, without arithmetic.

    Args:
        graph: Has the nodes.
        value: The next value.
        start: The last value.
    """
    by_output = {node.output: node for node in graph.nodes}
    while value != start:
        node = by_output.get(value)
        if node is None or node.epilogue:
            return False
        if isinstance(node.attributes, Gather) and node.attributes.background is not None:
            value = node.inputs[node.attributes.background]
        elif node.kind == "reshape":
            value = node.inputs[0]
        else:
            return False
    return True
