"""Pack weights that are computed at run time into the layout that convolution kernels read."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Node
from tflgpu.graph.layout import Geometry
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.kernels.packing import packing_nodes
from tflgpu.ops.declaration import Emitter
from tflgpu.ops.image.convolution import Convolution


def _pack(match: Match) -> Built:
    """Give a convolution whose weights are not constant a packed copy of them, a matrix.

    This pass is the last: weights that other passes make constant are packed at compile time. Depthwise weights need no
    packing.
    """
    graph, node = match.graph, match.node
    image, weights = graph[node.inputs[0]], graph[node.inputs[1]]
    groups = node.attributes.groups if isinstance(node.attributes, Convolution) else 1
    emit = Emitter(graph.new.ids, node.sources[0])
    packed = packing_nodes(emit, weights, groups, Geometry(image.shape))
    graph.new.keep(emit.tensors)
    return [*emit.nodes, replace(node, inputs=(node.inputs[0], packed.id, *node.inputs[2:]))]


def _needs_packing(graph: Draft, node: Node) -> bool:
    weights = graph[node.inputs[1]]
    return not weights.is_constant and len(weights.shape) == 4


pack_weights = Rules((Rule("pack_weights", op("convolution|transpose_convolution", where=_needs_packing), _pack),))
