"""The subgraphs that an operator calls, lowered where it stands or on their own, and how much they may add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tflgpu.errors import ModelError
from tflgpu.frontend.control_flow.counting import known_iterations
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.graph.ir import Tensor
from tflgpu.model.file_checks import called_by
from tflgpu.model.model import Model, Operator, Subgraph
from tflgpu.model.quantization import is_quantized

# Limits of how much calls of subgraphs may add to a file's own operators and constants, in one lowering. Every operator
# may become a kernel, and every use of a constant packed weights of its own.
MOST_OPERATORS = 16384
MOST_CONSTANT_BYTES = 256 << 20

# Every subgraph may be inlined this often besides: a condition is, before the first iteration and in the body.
USES_OF_A_SUBGRAPH = 2

MOST_SHOWN = 10**9  # products of nested loops have hundreds of digits


@dataclass(frozen=True)
class Cost:
    """Operators, and bytes of the constants that they have."""

    operators: int
    constant_bytes: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operators + other.operators, self.constant_bytes + other.constant_bytes)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.operators - other.operators, self.constant_bytes - other.constant_bytes)

    def times(self, count: int) -> Cost:
        """Return the cost of repetitions.

        Args:
            count: Their number.
        """
        return Cost(self.operators * count, self.constant_bytes * count)


class Budget:
    """Rest of the limit for all calls of subgraphs in one lowering of a model."""

    def __init__(self, subgraphs: Sequence[Subgraph]) -> None:
        self._subgraphs = subgraphs
        self._costs: dict[int, tuple[Subgraph, Cost]] = {}  # by the identity of the subgraph
        own = sum(map(_own_cost, subgraphs), Cost(0, 0))
        self._most = self._left = own.times(USES_OF_A_SUBGRAPH) + Cost(MOST_OPERATORS, MOST_CONSTANT_BYTES)

    def take(self, subgraph: Subgraph) -> str | None:
        """Spend what inlining a subgraph takes without its calls; if that and they are too much, returns why."""
        refusal = self.refusal(subgraph)
        if refusal is None:
            self._left += _own_cost(subgraph).times(-1)
        return refusal

    def refusal(self, *subgraphs: Subgraph, times: int = 1) -> str | None:
        """Return why subgraphs, with all that they call, cannot be inlined; None if they can.

        Args:
            *subgraphs: Those that are called.
            times: How often they would be inlined.
        """
        cost = sum(map(self._cost, subgraphs), Cost(0, 0)).times(times)
        operators = ("operators", cost.operators, self._left.operators, self._most.operators)
        constants = ("bytes of constants", cost.constant_bytes, self._left.constant_bytes, self._most.constant_bytes)
        for what, wanted, left, most in (operators, constants):
            if wanted > left:
                return (
                    f"inlining it takes {min(wanted, MOST_SHOWN)} {what} or more; the limit for the whole model is "
                    f"{most}, of which {left} are left"
                )
        return None

    def _cost(self, subgraph: Subgraph) -> Cost:
        """Return the least that inlining takes; of what is above the limit, no more than that."""
        if id(subgraph) not in self._costs:
            total = _own_cost(subgraph)
            for operator in subgraph.operators:
                costs = [self._cost(self._subgraphs[number]) for number in called_by(operator)]
                if costs and total.operators <= self._most.operators:
                    total += (
                        _least(costs)
                        if operator.code == "IF"
                        else sum(costs, Cost(0, 0)).times(self._iterations(operator, subgraph))
                    )
            self._costs[id(subgraph)] = subgraph, total
        return self._costs[id(subgraph)][1]

    def _iterations(self, operator: Operator, caller: Subgraph) -> int:
        """How often a WHILE goes through, if constants of the file tell; 1 for all else."""
        if operator.code != "WHILE" or -1 in operator.inputs:
            return 1
        condition, body = (self._subgraphs[operator.options[f"{name}_subgraph_index"]] for name in ("cond", "body"))
        sides = (operator.outputs, condition.inputs, body.inputs, body.outputs)
        if len(condition.outputs) != 1 or any(len(side) != len(operator.inputs) for side in sides):
            return 1
        state = [caller.tensors[t] for t in operator.inputs]
        return max(1, known_iterations(operator, condition, body, state) or 1)


def _own_cost(subgraph: Subgraph) -> Cost:
    return Cost(len(subgraph.operators), sum(t.bytes for t in subgraph.tensors if t.data is not None))


def _least(costs: Sequence[Cost]) -> Cost:
    return Cost(min(c.operators for c in costs), min(c.constant_bytes for c in costs))


@dataclass(frozen=True)
class Callee:
    """A subgraph that is lowered into ``graph``. lower: an operator of it; returns the obstacles.

    budget: what all calls of subgraphs share.
    """

    subgraph: Subgraph
    graph: GraphBuilder
    lower: Callable[[Operator], Sequence[str]]
    budget: Budget

    def call(self, inputs: Sequence[Tensor]) -> list[Tensor] | str:
        """Return the outputs of the subgraph, lowered for these inputs; or the first obstacle.

        Args:
            inputs: Tensors of the same graph, in the subgraph's order.
        """
        if refusal := self.budget.take(self.subgraph):
            return refusal
        self.graph.begin_call()
        self.graph.bound |= zip(self.subgraph.inputs, inputs, strict=True)
        try:
            for operator in self.subgraph.operators:
                reasons = self.lower(operator)
                if reasons:
                    return f"operator {operator.index} {operator.code}: {reasons[0]}"
        except ModelError as error:
            return str(error)
        return [self.graph.bound[t] for t in self.subgraph.outputs]


# The callee of a subgraph: in a graph of its own, or in that of the builder given.
Separate = Callable[[Subgraph, GraphBuilder | None], Callee]


def subgraphs_of(
    operator: Operator, model: Model, options: tuple[str, str], inputs: int, outputs: tuple[int, int]
) -> list[int] | str:
    """Return the numbers of the two subgraphs that an operator calls; or why it cannot be run.

    Args:
        operator: A WHILE or an IF.
        model: Has the subgraphs.
        options: The beginnings of the names of the operator's options.
        inputs: How many values each subgraph takes.
        outputs: How many values each subgraph gives.

    Raises:
        ModelError: A subgraph is not there.
    """
    numbers = [operator.options.get(f"{option}_subgraph_index", 0) for option in options]
    for number, wanted in zip(numbers, outputs, strict=True):
        if not 0 < number < len(model.subgraphs):
            where = f"operator {operator.index} {operator.code}"
            raise ModelError(f"{where} calls subgraph {number}; the model has {len(model.subgraphs)}")
        called = model.subgraphs[number]
        if len(called.inputs) != inputs or len(called.outputs) != wanted:
            found = f"takes {len(called.inputs)} values and gives {len(called.outputs)}"
            return f"its subgraph {number} {found}; {inputs} and {wanted} were expected"
        if any(is_quantized(called.tensors[t]) for t in (*called.inputs, *called.outputs)):
            return f"its subgraph {number} takes or gives quantized values"
        if operator.code == "WHILE" and (kept := next((t.name for t in called.tensors if t.is_variable), None)):
            return f"its subgraph {number} keeps tensor {kept!r} from one iteration to the next"
    return numbers


def loop_subgraphs(operator: Operator, model: Model, state: Sequence[Tensor]) -> list[int] | str:
    """Return the numbers of the condition and the body of a WHILE; or why it cannot be run.

    Args:
        operator: The WHILE.
        model: Has the subgraphs.
        state: The values that it takes.

    Raises:
        ModelError: A subgraph is not there.
    """
    count = len(operator.outputs)
    numbers = subgraphs_of(operator, model, ("cond", "body"), count, (1, count))
    if not isinstance(numbers, str) and len(state) != count:
        return f"it takes {len(state)} values and gives {count}"
    return numbers
