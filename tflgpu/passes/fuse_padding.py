"""Let a convolution read a residual of fewer channels than its result has, so that no copy with more is made."""

from __future__ import annotations

from tflgpu.graph.ir import Input, Node, Operand, TensorId, Value, extends_to
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.movement.shaping import Rearrange
from tflgpu.passes.fuse import fusable, fused


def _fuse(match: Match) -> Built:
    """``f(convolution, PAD(x))``, where PAD adds channels of zeros after x, becomes the convolution with x as operand.

    Its kernel takes the place of PAD's, which has the functions after both, as it comes last.
    """
    graph, node = match.graph, match.node
    operands = {node.inputs[i]: graph.producer.get(node.inputs[i]) for i in node.epilogue_inputs}
    found = [t for t, n in operands.items() if _is_convolution(n) and fusable(graph, n, t, node)]
    if not found:
        return None
    last = max(found, key=graph.place)
    return [fused(graph.producer[last], _map_of(node, last), 0)]


def _adds_channels(graph: Draft, node: Node) -> bool:
    """Whether a node adds zeros after the last channel, and nothing but its epilogue reads anything else."""
    pad = node.attributes
    if not isinstance(pad, Rearrange) or pad.fill != 0 or 0 in node.epilogue_inputs:
        return False
    plain = all(m.axis == i and m.start == 0 and m.step == 1 for i, m in enumerate(pad.axes))
    return plain and extends_to(graph[node.inputs[0]].shape, graph[node.output].shape)


fuse_padding = Rules((Rule("fuse_padding", op("rearrange", where=_adds_channels), _fuse),))


def _is_convolution(node: Node | None) -> bool:
    return node is not None and node.kind in ("convolution", "depthwise")


def _map_of(node: Node, tensor: TensorId) -> Node:
    """Return the map of ``tensor``, of what the node pads, and of what else its epilogue reads."""
    others = [t for t in node.inputs[1:] if t != tensor]

    def place(operand: Operand) -> Operand:
        if isinstance(operand, Value):
            return operand if operand.index else Input(1)
        read = node.inputs[operand.index]
        return Value(0) if read == tensor else Input(2 + others.index(read))

    epilogue = tuple(op.moved(place) for op in node.epilogue)
    return Node("map", (tensor, node.inputs[0], *others), node.output, None, epilogue, node.sources)
