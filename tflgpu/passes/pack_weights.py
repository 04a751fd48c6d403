"""Pack weights that are computed at run time into the layout that convolution kernels read."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, Tensor
from tflgpu.graph.layout import Geometry
from tflgpu.kernels.packing import packing_nodes
from tflgpu.ops.declaration import Emitter
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution


def pack_weights(graph: Graph) -> Graph:
    """Give every convolution whose weights are not constant a packed copy of them, a matrix.

    This pass is the last: weights that other passes make constant are packed at compile time. Depthwise weights need no
    packing.
    """
    fresh = graph.fresh_ids()
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    for node in graph.nodes:
        if _needs_packing(graph, node):
            image, weights = graph[node.inputs[0]], graph[node.inputs[1]]
            groups = node.attributes.groups if isinstance(node.attributes, Convolution) else 1
            emit = Emitter(fresh, node.sources[0])
            packed = packing_nodes(emit, weights, groups, Geometry(image.shape))
            nodes += emit.nodes
            tensors += emit.tensors
            node = replace(node, inputs=(node.inputs[0], packed.id, *node.inputs[2:]))
        nodes.append(node)
    return graph.with_nodes(nodes, tensors)


def _needs_packing(graph: Graph, node: Node) -> bool:
    if not isinstance(node.attributes, Convolution | TransposeConvolution):
        return False
    weights = graph[node.inputs[1]]
    return not weights.is_constant and len(weights.shape) == 4
