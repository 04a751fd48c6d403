"""The graph of one subgraph while it is lowered: which tensor of the graph stands for which tensor of the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np

from tflgpu.frontend.variables import Variables, first_value
from tflgpu.graph.deferred import Deferred
from tflgpu.graph.ir import Array, EpilogueOp, Node, Tensor
from tflgpu.model.model import FileTensor, Operator, Subgraph
from tflgpu.model.quantization import dequantized, grid_of, has_grid, is_quantized, scale_of, view_dtype
from tflgpu.ops import Check, Emitter, Site
from tflgpu.ops.arithmetic.reduction import reduce_node
from tflgpu.ops.declaration import Checks
from tflgpu.ops.evaluate import value_of

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
