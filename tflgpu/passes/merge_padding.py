"""Let convolutions and pooling pad an image or a residual themselves, so that no padded copy is made."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tflgpu.graph.ir import Input, Node, Operand, TensorId, Value, extends_to, joint_sources
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.image.window import Padding, Pool, Window
from tflgpu.ops.movement.shaping import Rearrange
from tflgpu.passes.fuse import fusable, fused

# Functions whose result is never negative.
NOT_NEGATIVE = frozenset(("relu", "relu6", "relu_0_to_1"))


def _merge(match: Match) -> Built:
    """Merge PAD (height and width) into a convolution or maximum pooling that reads it.

    The zeros of PAD count in an average and as a maximum; a pooling's own padding does not. For a maximum this makes no
    difference if every window holds a pixel of the image and no pixel is less than what is added: minus infinity, or
    zero where the image has no negative values. Only then is PAD merged.
    """
    graph, pad, reader = match.graph, match["pad"], match.node
    extra = _image_padding(graph, pad)
    attributes = None if extra is None else _padded(graph, pad, reader, extra)
    if attributes is None:
        return None
    inputs, sources = (pad.inputs[0], *reader.inputs[1:]), joint_sources(pad, reader)
    return [replace(reader, inputs=inputs, attributes=attributes, sources=sources)]


PADDING = op("rearrange", name="pad", plain=True)

merge_padding = Rules((Rule("merge_padding", op("convolution|depthwise|pool", PADDING), _merge),))


def _padded(graph: Draft, pad: Node, reader: Node, extra: Padding) -> Convolution | Depthwise | Pool | None:
    """Return the attributes of ``reader`` with the ``extra`` padding of ``pad``; None if it cannot pad so."""
    assert isinstance(pad.attributes, Rearrange)
    fill, image = pad.attributes.fill, pad.inputs[0]
    match reader.attributes:
        case Convolution() | Depthwise() as attributes if fill == 0:
            return replace(attributes, window=attributes.window.padded(extra))
        case Pool("maximum", window) as pool if fill == -inf or (fill == 0 and _is_not_negative(graph, image)):
            padded = replace(pool, window=window.padded(extra))
            return padded if _each_sees_the_image(padded.window) else None
    return None


def _each_sees_the_image(window: Window) -> bool:
    """Whether the window holds a pixel of the image at every position."""
    top, bottom, left, right = window.padding
    return max(top, bottom) < window.kernel[0] and max(left, right) < window.kernel[1]


def _is_not_negative(graph: Draft, tensor: TensorId) -> bool:
    """Whether the last epilogue op of the node that computes ``tensor`` excludes negative values."""
    producer = graph.producer.get(tensor)
    return producer is not None and bool(producer.epilogue) and producer.epilogue[-1].function in NOT_NEGATIVE


def _image_padding(graph: Draft, node: Node) -> Padding | None:
    """Return what a node adds around NHWC images; None if it does anything else."""
    pad = node.attributes
    if not isinstance(pad, Rearrange) or pad.fill is None or len(pad.axes) != 4:
        return None
    before, after = [], []
    for i, m in enumerate(pad.axes):
        if m.axis != i or m.step != 1:
            return None
        before.append(-m.start)
        after.append(graph[node.output].shape[i] - graph[node.inputs[0]].shape[i] + m.start)
    if before[0] or after[0] or before[3] or after[3] or min(*before, *after) < 0:
        return None
    return Padding(before[1], after[1], before[2], after[2])


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
