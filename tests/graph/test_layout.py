"""PHWC4: packing, its inverse, and the strides that kernels walk along."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tflgpu.graph.layout import LANES, Geometry, Shape, pack, unpack

SHAPES = st.lists(st.integers(1, 7), min_size=0, max_size=6).map(tuple)


def numbered(shape: Shape) -> np.ndarray:
    """Every element another number, none of them zero."""
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)


@given(SHAPES)
def test_unpack_inverts_pack(shape: Shape) -> None:
    np.testing.assert_array_equal(unpack(pack(numbered(shape)), shape), numbered(shape))


@given(SHAPES)
def test_packing_adds_zeros_and_nothing_else(shape: Shape) -> None:
    packed = pack(numbered(shape))
    assert packed.size == Geometry(shape).elements
    np.testing.assert_array_equal(np.sort(packed[packed != 0]), numbered(shape).reshape(-1))


@given(SHAPES)
def test_lanes_past_the_last_channel_are_zero(shape: Shape) -> None:
    g = Geometry(shape)
    planes = pack(numbered(shape)).reshape(g.batch, g.slices, g.plane, LANES)
    channels = planes.transpose(0, 2, 1, 3).reshape(g.batch, g.plane, g.slices * LANES)
    assert (channels[..., : g.channels] != 0).all()
    assert (channels[..., g.channels :] == 0).all()


@given(SHAPES.filter(lambda shape: len(shape) > 0), st.data())
def test_axis_strides_lead_to_each_element(shape: Shape, data: st.DataObject) -> None:
    g, packed = Geometry(shape), pack(numbered(shape))
    index = data.draw(st.tuples(*(st.integers(0, d - 1) for d in shape)))
    slice_, lane = divmod(index[-1], LANES)
    vec4 = slice_ * g.plane + sum(i * s for i, s in zip(index[:-1], g.axis_strides, strict=True))
    assert packed[LANES * vec4 + lane] == numbered(shape)[index]


@given(SHAPES)
def test_linear_shapes_have_the_bytes_of_the_host(shape: Shape) -> None:
    same = np.array_equal(pack(numbered(shape))[: numbered(shape).size], numbered(shape).reshape(-1))
    assert not Geometry(shape).is_linear or same
