"""A softmax that a model spells by several operators becomes one node, along any axis, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.model import Model, apply, kinds, rewritten
from tflgpu.passes import optimize

SHAPE = (2, 3, 11, 5)


def spelled(
    m: Model,
    x: int,
    *,
    axis: int,
    keep_dims: bool = True,
    limit: float | None = None,
    of: tuple[str, str] = ("MAX", "SUM"),
) -> int:
    """A softmax as converters write it. of: the greatest element and the sum."""
    shape = m.shape(x)
    kept = tuple(1 if i == axis else size for i, size in enumerate(shape))
    reduced = kept if keep_dims else tuple(size for i, size in enumerate(shape) if i != axis)
    greatest = m.add(f"REDUCE_{of[0]}", [x, m.ints([axis])], reduced, keep_dims=keep_dims)
    if limit is not None:
        greatest = m.add("MAXIMUM", [greatest, m.constant(np.float32(limit))], reduced)
    if not keep_dims:
        greatest = m.add("RESHAPE", [greatest], kept, new_shape=list(kept))
    exponential = m.add("EXP", [m.add("SUB", [x, greatest], shape)])
    total = m.add(of[1], [exponential, m.ints([axis])], kept, keep_dims=True)
    return m.add("DIV", [exponential, total], shape)


@pytest.mark.parametrize("axis", range(1, 4))
@pytest.mark.parametrize(("keep_dims", "limit"), [(True, None), (False, -np.inf), (True, np.finfo(np.float32).min)])
def test_it_is_found(axis: int, keep_dims: bool, limit: float | None) -> None:
    m = Model()
    graph = apply("find_softmaxes", m.graph(spelled(m, m.input(SHAPE), axis=axis, keep_dims=keep_dims, limit=limit)))
    assert kinds(graph) == ({"softmax": 1} if axis == 3 else {"softmax": 1, "rearrange": 2})


def test_its_axis_is_moved_with_what_moves_before_and_after() -> None:
    m = Model()
    heads = m.transpose(m.add("ABS", [m.input((1, 11, 2, 15))]), (2, 0, 1, 3))
    weights = m.transpose(spelled(m, heads, axis=2), (0, 1, 3, 2))
    graph = optimize(m.graph(m.add("RESHAPE", [weights], (2, 15, 11), new_shape=[2, 15, 11])))
    moved = [
        node.kind for node in graph.nodes if node.kind in ("rearrange", "reshape", "strided") and not node.in_place
    ]
    assert kinds(graph)["softmax"] == 1
    assert len(moved) == 1


@pytest.mark.parametrize(
    "options",
    [{"limit": 0.0, "axis": 2}, {"of": ("MIN", "SUM"), "axis": 2}, {"of": ("MAX", "MEAN"), "axis": 2}],
)
def test_what_is_none_is_left(options: dict[str, object]) -> None:
    m = Model()
    graph = m.graph(spelled(m, m.input(SHAPE), **options))  # type: ignore[arg-type]
    assert kinds(rewritten("find_softmaxes", graph)) == kinds(graph)


def test_sums_along_another_axis_or_of_other_elements_are_no_softmax() -> None:
    m = Model()
    x = m.input((4, 6, 6))
    greatest = m.add("REDUCE_MAX", [x, m.ints([1])], (4, 1, 6), keep_dims=True)
    exponential = m.add("EXP", [m.add("SUB", [x, greatest], (4, 6, 6))])
    other = m.add("EXP", [x])
    totals = [
        m.add("SUM", [exponential, m.ints([2])], (4, 6, 1), keep_dims=True),
        m.add("SUM", [other, m.ints([1])], (4, 1, 6), keep_dims=True),
    ]
    graph = m.graph(*(m.add("DIV", [exponential, total], (4, 6, 6)) for total in totals))
    assert kinds(rewritten("find_softmaxes", graph)) == kinds(graph)
