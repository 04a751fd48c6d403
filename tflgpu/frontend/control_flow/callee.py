"""The subgraphs that an operator calls, lowered where it stands or on their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tflgpu.errors import ModelError
from tflgpu.frontend.control_flow.budget import Budget
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import Model, Operator, Subgraph
from tflgpu.model.quantization import is_quantized


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
