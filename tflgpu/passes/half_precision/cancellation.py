"""Tensors whose differences may be much smaller than they are: squared distances, divergences, one less a cosine.

Numbers that half holds give a difference that is as good as they are: what is wrong with it is no more than what was
wrong before. So only what is *derived* from them counts: sums, products of activations, and functions, whose rounding
is new. A layer whose weights have both signs, a norm, and an input of the graph begin anew. Where a difference is taken
of derived numbers, whatever it is spelled like, these and all derived ones that they are made of lose too much in half.
"""

from __future__ import annotations

from collections.abc import Iterator

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, Operand, TensorId, Value
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.passes.half_precision.ranges import PRODUCTS, USUAL, Range, Ranges, weighted_sum

# Kinds that move elements, and those that compute with nothing but activations.
MOVES = frozenset(("concatenate", "gather", "map", "rearrange", "reshape", "strided"))
DERIVES = frozenset(("cumulative_sum", "pool", "reduce", "softmax"))

# Functions whose result is an operand, or a multiple of one, where the others are constants.
EXACT = frozenset(("abs", "clamp", "div", "maximum", "minimum", "mul", "neg", "relu", "relu6", "add", "sub"))

# Constants from which on numbers may cancel; smaller ones keep divisors from zero.
LEAST_CONSTANT = 0.01


class Cancellations:
    """The tensors that differences need in float."""

    def __init__(self, graph: Graph, ranges: Ranges) -> None:
        """Go through all nodes, forward for what is derived and back for what differences are made of.

        Args:
            graph: In execution order.
            ranges: Of its tensors, of usual size.
        """
        self._graph, self._ranges = graph, ranges
        self._derived = set[TensorId]()
        self._rounded = set[TensorId]()  # what is derived, and sums of what is not
        self._values: dict[TensorId, list[bool]] = {}  # of nodes by output: which values are derived
        self._square_sums: dict[TensorId, list[bool]] = {}  # and which are sums of squares
        for node in graph.nodes:
            self._square_sums[node.output] = self._sums_of_squares(node)
            values = self._values[node.output] = self._derived_values(node)
            if graph[node.output].dtype == "float32" and node.kind in MOVES | DERIVES | PRODUCTS:
                if values[-1] and (not _is_layer(graph, node) or _multiplies(graph, node)):
                    self._derived.add(node.output)
                if node.output in self._derived or (node.kind in MOVES and node.epilogue):
                    self._rounded.add(node.output)
        self.found = set[TensorId]()
        for node in reversed(graph.nodes):
            if node.output in self.found:
                self.found.update(self._made_of(node))
            for op in node.epilogue:
                self.found.update(self._cancelling(node, op))

    def _derived_values(self, node: Node) -> list[bool]:
        """Whether each value of a node was rounded anew since a layer computed what it is made of."""
        graph = self._graph
        moves = node.kind in MOVES and not self._derived.isdisjoint(_own_inputs(node))
        values = [moves or node.kind in DERIVES or (node.kind in PRODUCTS and not _is_layer(graph, node))]
        for op in node.epilogue:
            computed = [o for o in op.operands if not _is_constant(graph, node, o)]
            is_new = op.function not in EXACT or (len(computed) > 1 and op.function in ("div", "mul"))
            values.append(
                is_new or any(values[o.index] if isinstance(o, Value) else self._is_derived(node, o) for o in computed)
            )
        return values

    def _is_derived(self, node: Node, operand: Operand) -> bool:
        if isinstance(operand, Input):
            return node.inputs[operand.index] in self._derived
        return self._values[node.output][operand.index]

    def _made_of(self, node: Node) -> Iterator[TensorId]:
        """Yield what a tensor that differences need has to be computed from."""
        if node.output in self._derived:
            yield from self._rounded.intersection(node.inputs)
        elif node.kind in MOVES and not node.epilogue:
            yield from (t for t in node.inputs if self._graph[t].dtype == "float32")

    def _cancelling(self, node: Node, op: EpilogueOp) -> Iterator[TensorId]:
        """Yield the tensors that an op takes the difference of."""
        derived = [o for o in op.operands if self._is_derived(node, o)]
        constants = [o for o in op.operands if _is_constant(self._graph, node, o)]
        of_squares = False
        match op.function:
            case "log":  # of a quotient near 1
                (operand,) = op.operands
                op = node.epilogue[operand.index - 1] if isinstance(operand, Value) and operand.index else op
                differs = op.function == "div" and all(self._is_derived(node, o) for o in op.operands)
            case "add" | "sub" if constants:
                is_number = self._graph[node.inputs[constants[0].index]].size == 1
                differs = bool(derived) and is_number and self._may_be_zero(node, op)
            case "add" | "sub" if derived:
                of_squares = any(self._is_square_sum(node, o) for o in op.operands)
                is_less = op.function == "sub" or self._have_other_signs(node, op)
                is_pair = len(derived) == 2 and op.operands[0] != op.operands[1]
                differs = of_squares or (is_pair and is_less and self._may_be_zero(node, op))
            case _:
                return
        for operand in op.operands if differs else ():
            yield from self._read(node, operand, of_squares=of_squares)

    def _may_be_zero(self, node: Node, op: EpilogueOp) -> bool:
        """Whether both operands of a sum or difference may be of one size, beyond that of an epsilon."""
        (low, high), other = (self._range(node, o) for o in op.operands)
        least, most = other if op.function == "sub" else (-other[1], -other[0])
        low, high = max(low, least), min(high, most)
        return low <= high and max(-low, high) >= LEAST_CONSTANT

    def _range(self, node: Node, operand: Operand) -> Range:
        if isinstance(operand, Input):
            return self._ranges.of(node.inputs[operand.index])
        return self._ranges.values(node)[operand.index]

    def _read(self, node: Node, operand: Operand, *, of_squares: bool = False) -> Iterator[TensorId]:
        """Yield the derived tensors that an operand is computed from; and a layer's result and weights, if squares are
        added to it."""
        graph = self._graph
        waiting, seen = [(operand, of_squares)], {(operand, of_squares)}
        while waiting:
            operand, adds_squares = waiting.pop()
            if isinstance(operand, Value) and operand.index:
                op = node.epilogue[operand.index - 1]
                computed = [o for o in op.operands if not _is_constant(graph, node, o)]
                is_sum = len(computed) == 1 or op.function in ("add", "sub")
                new = {(each, adds_squares and is_sum) for each in computed} - seen
                seen |= new
                waiting += new
                continue
            read = (node.inputs[operand.index],) if isinstance(operand, Input) else _own_inputs(node)
            yield from self._rounded.intersection(read)
            if adds_squares:
                layer, _ = origin(graph, node, operand)
                if layer is not None and layer.kind in PRODUCTS:
                    yield from () if layer is node else read
                    yield from (t for t in layer.inputs[:2] if graph[t].is_constant)

    def _sums_of_squares(self, node: Node) -> list[bool]:
        """Whether each value of a node is a sum of squares or products of activations, or a sum of such."""
        graph = self._graph
        values = [self._adds_squares(node)]
        for op in node.epilogue:
            computed = [o for o in op.operands if not _is_constant(graph, node, o)]
            adds = op.function in ("add", "sub") or (op.function in ("div", "mul", "neg") and len(computed) == 1)
            sums = (values[o.index] if isinstance(o, Value) else self._is_square_sum(node, o) for o in computed)
            values.append(adds and any(sums))
        return values

    def _adds_squares(self, node: Node) -> bool:
        """Whether a node's kernel adds up squares or products, or moves such sums."""
        if node.kind in MOVES:
            return self._is_square_sum(node, Input(0))
        function = node.attributes.function if isinstance(node.attributes, Reduce) else ""
        weighted = weighted_sum(self._graph, node)
        if function not in ("mean", "sum") and weighted is None:
            return function == "sum_of_squares"
        inner, product = origin(self._graph, node, Input(weighted.operand if weighted else 0))
        return inner is not None and product is not None and _is_product(self._graph, inner, product)

    def _is_square_sum(self, node: Node, operand: Operand) -> bool:
        if isinstance(operand, Input):
            return self._square_sums.get(node.inputs[operand.index], [False])[-1]
        return self._square_sums[node.output][operand.index]

    def _have_other_signs(self, node: Node, op: EpilogueOp) -> bool:
        """Whether one operand of a sum is positive and the other one negative, or a negative multiple of something."""
        first, second = (self._range(node, o) for o in op.operands)
        is_one = (first[0] >= 0 and second[1] <= 0) or (first[1] <= 0 and second[0] >= 0)
        return is_one or any(self._is_opposite(node, o) for o in op.operands)

    def _is_opposite(self, node: Node, operand: Operand) -> bool:
        """Whether an operand is a negative multiple of something, and no mask."""
        made, op = origin(self._graph, node, operand)
        if made is None or op is None:
            return False
        factors = [
            self._graph.constant(made.inputs[o.index])
            for o in op.operands
            if isinstance(o, Input) and _is_constant(self._graph, made, o)
        ]
        is_scaled = op.function in ("div", "mul") and any(
            f is not None and ((USUAL.unknown[0] <= f) & (f < 0)).all() for f in factors
        )
        return op.function == "neg" or is_scaled


def _is_product(graph: Graph, node: Node, op: EpilogueOp) -> bool:
    return op.function == "square" or (
        op.function == "mul" and not any(_is_constant(graph, node, o) for o in op.operands)
    )


def _is_layer(graph: Graph, node: Node) -> bool:
    has_weights = node.kind in PRODUCTS and any(graph[t].is_constant for t in node.inputs[:2])
    return has_weights and weighted_sum(graph, node) is None


def _multiplies(graph: Graph, node: Node) -> bool:
    """Whether a node's epilogue multiplies or divides by another activation."""
    return any(
        op.function in ("div", "mul")
        and any(isinstance(o, Input) and not _is_constant(graph, node, o) for o in op.operands)
        for op in node.epilogue
    )


def _own_inputs(node: Node) -> tuple[TensorId, ...]:
    """Return what a node's kernel reads, but for its epilogue."""
    read = node.epilogue_inputs
    return tuple(t for i, t in enumerate(node.inputs) if i not in read or (i == 0 and node.kind == "map"))


def origin(graph: Graph, node: Node, operand: Operand) -> tuple[Node | None, EpilogueOp | None]:
    """Return the node and the epilogue op that compute an operand, wherever its elements are moved; no op where it is
    a kernel's result, no node for what none computes."""
    while True:
        if isinstance(operand, Input):
            if node.inputs[operand.index] not in graph.producer:
                return None, None
            node = graph.producer[node.inputs[operand.index]]
            operand = Value(len(node.epilogue))
        elif operand.index:
            return node, node.epilogue[operand.index - 1]
        elif node.kind in MOVES:
            operand = Input(0)
        else:
            return node, None


def _is_constant(graph: Graph, node: Node, operand: Operand) -> bool:
    return isinstance(operand, Input) and graph[node.inputs[operand.index]].is_constant
