"""In half precision: weights that the caller gives stay in float, and so does what convolutions compute with them."""

from __future__ import annotations

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.ops.image.convolution import output_channel_axis
from tflgpu.ops.movement.shaping import Rearrange


def keep_given_weights(graph: Graph) -> Graph:
    """Mark inputs that are nothing but weights, in another order perhaps, as precise, and the sums of such products.

    Nothing trained these weights to keep sums within the range and the digits of half precision.
    """
    copies = set(graph.inputs)
    for node in graph.nodes:
        if _reorders(node) and node.inputs[0] in copies:
            copies.add(node.output)
    weights: set[TensorId] = set()
    for tensor in (*(n.output for n in reversed(graph.nodes)), *graph.inputs):
        readers = graph.consumers.get(tensor, ())
        if tensor in copies and readers and all(_takes_weights(n, tensor) or n.output in weights for n in readers):
            weights.add(tensor)
    precise = weights | {n.output for n in graph.nodes if not weights.isdisjoint(n.inputs)}
    return graph.with_nodes(graph.nodes, [graph[t].changed(precise=True) for t in precise])


def _reorders(node: Node) -> bool:
    return not node.epilogue and (isinstance(node.attributes, Rearrange) or node.kind == "reshape")


def _takes_weights(node: Node, tensor: TensorId) -> bool:
    """Whether ``tensor`` is the weights of a convolution and nothing else to it."""
    return output_channel_axis(node) is not None and [i for i, t in enumerate(node.inputs) if t == tensor] == [1]
