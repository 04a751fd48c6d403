"""Where the pictures put things: nothing overlaps, every line leads down, and lanes are free when they are taken."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tflgpu.page.graph_drawing import BELOW, LINE, Box, arrange, chains_of, draw_lanes, layers_of, transitive_reduction
from tflgpu.page.plots import Canvas, LogScale, digits, duration, linear_ticks, rate, share, size

# Where the edges to each of some nodes come from.
Sources = dict[int, list[int]]


@st.composite
def sources(draw: st.DrawFn) -> Sources:
    count = draw(st.integers(1, 12))
    before = {n: sorted(draw(st.sets(st.integers(0, n - 1), max_size=3))) for n in range(1, count)}
    return {0: [], **before}


def reachable(edges: set[tuple[int, int]], count: int) -> set[tuple[int, int]]:
    """Every pair of nodes between which there is a path."""
    found = set(edges)
    for middle in range(count):
        found |= {(a, d) for a, b in found for c, d in found if b == c == middle}
    return found


@given(sources())
def test_the_reduction_keeps_every_path_and_nothing_more(before: Sources) -> None:
    edges = {(a, b) for b, each in before.items() for a in each}
    kept = transitive_reduction(before)
    assert reachable(kept, len(before)) == reachable(edges, len(before))
    for edge in kept:
        assert reachable(kept - {edge}, len(before)) != reachable(edges, len(before))


@given(sources())
def test_chains_have_every_node_once_and_are_as_long_as_they_can_be(before: Sources) -> None:
    edges = transitive_reduction(before)
    chains = chains_of(list(before), edges)
    assert sorted(node for chain in chains for node in chain) == list(before)
    for a, b in edges:
        alone = sum(a == c for c, _ in edges) == 1 and sum(b == d for _, d in edges) == 1
        assert alone == any((a, b) in pairwise(chain) for chain in chains)


def test_a_residual_connection_does_not_end_a_chain() -> None:
    edges = transitive_reduction({0: [], 1: [0], 2: [1], 3: [0, 2]})
    assert chains_of(range(4), edges) == [[0, 1, 2, 3]]


@given(sources(), st.data())
def test_boxes_do_not_overlap_and_no_line_crosses_one(before: Sources, data: st.DataObject) -> None:
    sizes = st.builds(Box, st.sampled_from([60.0, 164.0]), st.sampled_from([26.0, 100.0]))
    boxes = [data.draw(sizes) for _ in before]
    edges = {(a, b) for b, each in before.items() for a in each}
    arranged = arrange(boxes, edges)
    frames = [(x, y, x + b.width, y + b.height) for (x, y), b in zip(arranged.corners, boxes, strict=True)]
    assert all(x >= 0 and y >= 0 and r <= arranged.width + 1 and b <= arranged.height + 1 for x, y, r, b in frames)
    for first, second in combinations(frames, 2):
        assert first[2] <= second[0] or second[2] <= first[0] or first[3] <= second[1] or second[3] <= first[1]
    for a, b in edges:
        assert frames[a][3] + BELOW <= frames[b][1] + 1e-6
        for x, y in arranged.routes[a, b]:
            assert not any(f[0] < x < f[2] and f[1] <= y < f[3] for f in frames)


def test_what_depends_on_nothing_is_just_above_what_needs_it() -> None:
    assert layers_of(5, {(0, 1), (1, 2), (2, 4), (3, 4)}) == [0, 1, 2, 2, 3]


@given(sources())
def test_a_lane_has_one_value_at_a_time(before: Sources) -> None:
    drawing = draw_lanes(before)
    last = {a: b for b, each in before.items() for a in each}
    assert [dot.y for dot in drawing.dots] == [LINE * (place + 0.5) for place in before]
    for first, second in combinations(drawing.dots, 2):
        if first.x == second.x:
            assert last.get(first.place, first.place) <= second.place
    assert len(drawing.lanes) == sum(map(len, before.values()))


def test_scales_have_round_ticks() -> None:
    canvas = Canvas(width=100, height=100, left=0)
    ticks = linear_ticks(4_886_016, lambda b: b, lambda b: f"{b / 1e6:g} MB", 6)
    assert [t.label for t in ticks] == ["0 MB", "1 MB", "2 MB", "3 MB", "4 MB"]
    scale = LogScale(0.3, 3000.0, 0.0, canvas.width)
    assert [t.label for t in scale.ticks()] == ["1", "10", "100", "1000"]
    assert [t.label for t in LogScale(3.0, 60.0, 0.0, 1.0).ticks()] == ["5", "10", "20", "50"]
    assert (scale(0.3), scale(3000.0)) == (0.0, pytest.approx(100.0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (duration(0.0), "0 ns"),
        (duration(2.81e-7), "281 ns"),
        (duration(8.28e-4), "828 µs"),
        (duration(0.01526), "15.3 ms"),
        (duration(0.9999), "1.00 s"),
        (size(0), "0 bytes"),
        (size(999.9), "1.00 kB"),
        (size(4_886_016), "4.89 MB"),
        (digits(485458.9), "485,000"),
        (digits(0.0421), "0.042"),
        (rate(43.21, "B"), "43.2 GB/s"),
        (rate(643_000, "FLOP"), "643 TFLOP/s"),
        (share(1, 3), "33%"),
        (share(1, 30), "3.3%"),
        (share(1, 1e6), "<0.1%"),
        (share(0, 0), "0%"),
    ],
)
def test_numbers_have_three_digits(text: str, expected: str) -> None:
    assert text == expected
