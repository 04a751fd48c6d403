"""Depthwise convolutions of parts of an image that are concatenated become one, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.graph.model import Model, apply, kinds, rewritten
from tflgpu.ops.image.convolution import Depthwise

IMAGE = (1, 9, 8, 24)


def parts(
    m: Model, x: int, windows: Sequence[int], sizes: Sequence[int], starts: Sequence[int] = (), *, stride: int = 1
) -> list[int]:
    """Convolutions of channels that follow each other, or begin at ``starts``."""
    results, place = list[int](), 3
    batch, height, width, _ = m.shape(x)
    for i, (kernel, size) in enumerate(zip(windows, sizes, strict=True)):
        begin = starts[i] if starts else place
        part = m.add(
            "SLICE", [x, m.ints([0, 0, 0, begin]), m.ints([batch, height, width, size])], (*m.shape(x)[:3], size)
        )
        shape = (batch, -(-height // stride), -(-width // stride), size)
        inputs = [part, m.weights(1, kernel, kernel, size), m.weights(size)]
        options = {"padding": 0, "stride_w": stride, "stride_h": stride, "depth_multiplier": 1}
        results.append(m.add("DEPTHWISE_CONV_2D", inputs, shape, **options))
        place += size
    return results


def joined(m: Model, results: Sequence[int], axis: int = 3) -> int:
    shape = list(m.shape(results[0]))
    shape[axis] = sum(m.shape(r)[axis] for r in results)
    return m.add("CONCATENATION", list(results), shape, axis=axis)


@pytest.mark.parametrize("windows", [(3, 5, 7), (5, 3, 3), (3, 4)])
def test_neighbouring_channels_are_one_convolution(windows: tuple[int, ...]) -> None:
    m = Model()
    x = m.input(IMAGE)
    graph = apply("join_depthwise", m.graph(joined(m, parts(m, x, windows, (6, 7, 8)[-len(windows) :]))))
    assert kinds(graph) == {"rearrange": 1, "depthwise": 1}
    (attributes,) = (n.attributes for n in graph.nodes if isinstance(n.attributes, Depthwise))
    assert attributes.window.kernel == (max(windows),) * 2


def test_all_channels_need_no_slice() -> None:
    m = Model()
    x = m.input(IMAGE)
    graph = apply("join_depthwise", m.graph(joined(m, parts(m, x, (3, 5), (10, 14), (0, 10), stride=2))))
    assert kinds(graph) == {"depthwise": 1}


@pytest.mark.parametrize(
    ("windows", "starts"),
    [((3, 5), (6, 0)), ((3, 5), (0, 7)), ((3, 5), (0, 0)), ((1, 1, 7), (0, 6, 12))],
    ids=["other order", "gap", "the same", "too many products"],
)
def test_others_stay_apart(windows: tuple[int, ...], starts: tuple[int, ...]) -> None:
    m = Model()
    graph = m.graph(joined(m, parts(m, m.input(IMAGE), windows, (6,) * len(windows), starts)))
    assert kinds(rewritten("join_depthwise", graph)) == kinds(graph)


def test_parts_of_whole_vec4s_stay_where_they_lie() -> None:
    m = Model()
    graph = m.graph(joined(m, parts(m, m.input(IMAGE), (3, 5), (8, 8), (4, 12))))
    assert kinds(rewritten("join_depthwise", graph)) == kinds(graph)


def test_parts_that_are_read_elsewhere_or_are_not_of_one_image_stay_apart() -> None:
    m = Model()
    x, y = m.input(IMAGE), m.input(IMAGE)
    read = parts(m, x, (3, 5), (6, 6), (0, 6))
    others = [parts(m, image, (3,), (6,), (start,))[0] for image, start in ((x, 0), (y, 6))]
    rows = parts(m, x, (3, 5), (6, 6), (0, 6))
    graph = m.graph(m.add("NEG", [read[0]]), joined(m, read), joined(m, others), joined(m, rows, axis=1))
    assert kinds(rewritten("join_depthwise", graph)) == kinds(graph)
