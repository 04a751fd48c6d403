"""Results of DENSIFY of constants: sparse ones are dense since the file was read."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.model.model import Subgraph


def densified(subgraph: Subgraph) -> Subgraph:
    """Return the subgraph, in which the result of each DENSIFY of a constant is that constant, by the result's own
    scales."""
    tensors, dense = [*subgraph.tensors], False
    for operator in subgraph.operators:
        if operator.code != "DENSIFY" or len(operator.inputs) != 1 or len(operator.outputs) != 1:
            continue
        source, result = (tensors[t] for t in (*operator.inputs, *operator.outputs))
        same = (source.shape, source.dtype) == (result.shape, result.dtype)
        if source.data is not None and same and not result.is_variable:
            tensors[result.index], dense = replace(result, data=source.data), True
    return replace(subgraph, tensors=tuple(tensors)) if dense else subgraph
