"""Make one depthwise convolution of several whose results are concatenated, and whose images are slices of one.

Networks convolve parts of an image's channels with windows of different sizes. Parts of whole vec4s are read and
written where they lie. Others take a slice each and a concatenation that move single elements: with zeros around the
smaller windows they are one convolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tflgpu.graph.ir import Array, Node, TensorId, joint_sources
from tflgpu.graph.layout import LANES
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import Padding, Window
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange, slice_start

# How many times the products of the parts the joint convolution has at most, those with zeros counted.
MOST_PRODUCTS = 2


@dataclass(frozen=True)
class Part:
    """A depthwise convolution of ``size`` channels of ``image`` from ``start`` on."""

    node: Node
    window: Window
    image: TensorId
    start: int
    size: int


def _join(match: Match) -> Built:
    """Compute a concatenation of depthwise convolutions of neighbouring channels at once, if that has few products."""
    parts = _parts(match.graph, match.node)
    window = _joint_window([p.window for p in parts]) if parts else None
    if not parts or window is None:
        return None
    products = sum(prod(p.window.kernel) * p.size for p in parts)
    if prod(window.kernel) * sum(p.size for p in parts) > MOST_PRODUCTS * products:
        return None
    return list(_joint(match.graph, match.node, parts, window))


join_depthwise = Rules((Rule("join_depthwise", op("concatenate", plain=True), _join),))


def _parts(graph: Draft, node: Node) -> list[Part] | None:
    """Return the parts of a concatenation of convolutions; None if it is of anything else, or of whole vec4s."""
    if not isinstance(node.attributes, Concatenate) or len(node.inputs) < 2:
        return None
    if node.attributes.axis != len(graph[node.output].shape) - 1:
        return None
    parts = list[Part]()
    for tensor in node.inputs:
        part = _part(graph, tensor)
        if part is None:
            return None
        if parts and (part.image, part.start) != (parts[0].image, parts[-1].start + parts[-1].size):
            return None
        parts.append(part)
    return parts if any(p.start % LANES for p in parts) else None


def _part(graph: Draft, tensor: TensorId) -> Part | None:
    """Return the convolution that computes ``tensor``, if nothing else reads it or the slice that it is of."""
    node = graph.producer.get(tensor)
    if node is None or node.epilogue or graph.sole_consumer(tensor) is None:
        return None
    attributes = node.attributes
    if not isinstance(attributes, Depthwise) or attributes.multiplier != 1:
        return None
    if not all(graph[t].is_constant and graph[t].scale is None for t in node.inputs[1:]):
        return None
    taken = graph.producer.get(node.inputs[0])
    shape = graph[node.inputs[0]].shape
    if taken is None or taken.epilogue or not isinstance(taken.attributes, Rearrange):
        return None
    start = slice_start(taken.attributes, graph[taken.inputs[0]].shape, shape, len(shape) - 1)
    if start is None:
        return None
    return Part(node, attributes.window, taken.inputs[0], start, shape[-1])


def _joint_window(windows: Sequence[Window]) -> Window | None:
    """Return the window that has all of these inside; None if there is none."""
    if len({(w.stride, w.dilation) for w in windows}) > 1 or windows[0].dilation != (1, 1):
        return None
    top, left = (max(w.padding[i] for w in windows) for i in (0, 2))
    height = max(top - w.padding.top + w.kernel[0] for w in windows)
    width = max(left - w.padding.left + w.kernel[1] for w in windows)
    first = windows[0]
    bottom = first.padding.bottom + height - (top - first.padding.top + first.kernel[0])
    right = first.padding.right + width - (left - first.padding.left + first.kernel[1])
    return replace(first, kernel=(height, width), padding=Padding(top, bottom, left, right))


def _joint(graph: Draft, node: Node, parts: Sequence[Part], window: Window) -> Iterator[Node]:
    """Yield the slice, if one is needed, and the convolution."""
    new, channels = graph.new, sum(p.size for p in parts)
    source, start = graph[parts[0].image], parts[0].start
    image, shape = source.id, source.shape
    if shape[-1] != channels:
        image = new.like(source, (*shape[:-1], channels)).id
        axes = tuple(AxisMap(axis, start if axis == len(shape) - 1 else 0) for axis in range(len(shape)))
        yield Node("rearrange", (source.id,), image, Rearrange(axes), sources=node.sources)
    weights = new.constant(np.concatenate([_within(graph, p, window) for p in parts], axis=-1))
    biases = [_bias(graph, p) for p in parts]
    inputs = (image, weights, new.constant(np.concatenate(biases)))
    sources = joint_sources(*(p.node for p in parts), node)
    yield Node("depthwise", inputs, node.output, Depthwise(window, 1), sources=sources)


def _within(graph: Draft, part: Part, window: Window) -> Array:
    """Return the weights of a part with zeros around them, as large as ``window``."""
    data = graph.constant(part.node.inputs[1])
    assert data is not None
    top, left = window.padding.top - part.window.padding.top, window.padding.left - part.window.padding.left
    below = window.kernel[0] - top - part.window.kernel[0]
    right = window.kernel[1] - left - part.window.kernel[1]
    return np.pad(data, ((0, 0), (top, below), (left, right), (0, 0)))


def _bias(graph: Draft, part: Part) -> Array:
    data = graph.constant(part.node.inputs[2]) if len(part.node.inputs) > 2 else None
    return np.zeros(part.size, np.float32) if data is None else data.reshape(-1)
