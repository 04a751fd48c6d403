"""Let a convolution pad for itself instead of reading a padded copy."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.ir import Graph, Node, joint_sources
from tflgpu.ops.convolution import Convolution, Depthwise
from tflgpu.ops.shaping import Rearrange
from tflgpu.ops.window import Padding


def merge_padding(graph: Graph) -> Graph:
    """Merge PAD (height and width, zeros) into the convolution that alone reads it.

    Not into pooling: an average must count the zeros that PAD adds and not those of its own padding, and a maximum
    must see them as candidates. A convolution cannot tell them apart.
    """
    merged: dict[int, Node] = {}
    dropped: set[int] = set()
    for node in graph.nodes:
        extra = _image_padding(graph, node)
        reader = graph.sole_consumer(node.output)
        if extra is None or reader is None or not isinstance(reader.attributes, Convolution | Depthwise):
            continue
        attributes = replace(reader.attributes, window=reader.attributes.window.padded(extra))
        merged[reader.output] = replace(
            reader,
            inputs=(node.inputs[0], *reader.inputs[1:]),
            attributes=attributes,
            sources=joint_sources(node, reader),
        )
        dropped.add(node.output)
    return graph.with_nodes(merged.get(n.output, n) for n in graph.nodes if n.output not in dropped)


def _image_padding(graph: Graph, node: Node) -> Padding | None:
    """How a node pads NHWC images with zeros, if that is all it does."""
    pad = node.attributes
    if not isinstance(pad, Rearrange) or pad.fill != 0 or node.steps or len(pad.axes) != 4:
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
