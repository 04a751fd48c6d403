"""In half precision: weights that the caller gives stay in float, and so does what convolutions compute with them."""

from __future__ import annotations

from collections.abc import Iterator

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.ops.image.convolution import output_channel_axis
from tflgpu.ops.movement.shaping import Rearrange


def keep_given_weights(graph: Graph) -> Graph:
    """Mark inputs that are nothing but weights, in another order perhaps, as precise, and the sums of such products.

    Nothing trained these weights to keep sums within the range and the digits of half precision.
    """
    weights = {t for tensor in graph.inputs for t in _copies(graph, tensor) if _is_weights(graph, t)}
    precise = weights | {node.output for tensor in weights for node in graph.consumers[tensor]}
    return graph.with_nodes(graph.nodes, [graph[t].changed(precise=True) for t in precise])


def _copies(graph: Graph, tensor: TensorId) -> Iterator[TensorId]:
    """Yield a tensor, and all that has the same elements in another order."""
    yield tensor
    for node in graph.consumers.get(tensor, ()):
        if _reorders(node):
            yield from _copies(graph, node.output)


def _is_weights(graph: Graph, tensor: TensorId) -> bool:
    """Whether all that reads a tensor or its copies takes it as weights."""
    readers = graph.consumers.get(tensor, ())
    return bool(readers) and all(
        _takes_weights(node, tensor) or (_reorders(node) and _is_weights(graph, node.output)) for node in readers
    )


def _reorders(node: Node) -> bool:
    return not node.epilogue and (isinstance(node.attributes, Rearrange) or node.kind == "reshape")


def _takes_weights(node: Node, tensor: TensorId) -> bool:
    """Whether ``tensor`` is the weights of a convolution and nothing else to it."""
    return output_channel_axis(node) is not None and [i for i, t in enumerate(node.inputs) if t == tensor] == [1]
