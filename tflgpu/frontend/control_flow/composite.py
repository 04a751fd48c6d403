"""STABLEHLO_COMPOSITE: the subgraph that says what it computes, where it stands.

A composite has a name, such as ``odml.rms_norm``, and a subgraph of usual operators, its decomposition. The passes find
norms and attention in these operators, however a model spells them, so that no name has to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tflgpu.frontend.control_flow.callee import Callee
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import FileTensor, Operator
from tflgpu.model.quantization import is_quantized

COMPOSITE = "STABLEHLO_COMPOSITE"


def inline(
    operator: Operator, inputs: Sequence[Tensor | None], graph: GraphBuilder, callee: Callable[[int], Callee]
) -> list[Tensor] | str:
    """Add the decomposition of a composite to a graph.

    Args:
        operator: The composite.
        inputs: Those of the operator; None for absent ones.
        graph: Gets the nodes.
        callee: Gives a subgraph by its number, in the same graph.

    Returns:
        The results; or why that is not possible.
    """
    number = operator.options.get("decomposition_subgraph_index")
    if number is None:
        return "it names no decomposition"
    given = [t for t in inputs if t is not None]
    if len(given) < len(inputs):
        return "it lacks an input that its decomposition takes"
    decomposition = callee(number)
    inner, outer = decomposition.subgraph, graph.subgraph.tensors
    pairs = zip((*operator.inputs, *operator.outputs), (*inner.inputs, *inner.outputs), strict=True)
    for own, called in pairs:
        if not _are_alike(outer[own], inner.tensors[called]):
            return f"{outer[own].name!r} and {inner.tensors[called].name!r} of its decomposition hold different types"
    decomposition.graph.caller = operator.index
    results = decomposition.call(given)
    return f"in its decomposition, {results}" if isinstance(results, str) else results


def _are_alike(own: FileTensor, called: FileTensor) -> bool:
    """Whether both tensors hold the same numbers in the same way, so that a value may go from one to the other."""
    if is_quantized(own) or is_quantized(called):
        return own.dtype == called.dtype and own.quantization == called.quantization
    return own.dtype == called.dtype
