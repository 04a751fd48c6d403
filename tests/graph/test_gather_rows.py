"""Rows that slices, concatenations and transposes give another order are gathered once, and no result changes."""

from __future__ import annotations

from math import prod

import pytest

from tests.graph.model import Model, apply, kinds


class Windows(Model):
    """Images whose pixels go round, and windows of 3 x 3."""

    def cut(self, x: int, axis: int, begin: int, end: int) -> int:
        shape = list(self.shape(x))
        shape[axis] = end - begin
        begins = [begin if i == axis else 0 for i in range(len(shape))]
        return self.add("SLICE", [x, self.ints(begins), self.ints(shape)], shape)

    def roll(self, x: int, axis: int, shift: int) -> int:
        size = self.shape(x)[axis]
        parts = [self.cut(x, axis, shift, size), self.cut(x, axis, 0, shift)]
        return self.add("CONCATENATION", parts, self.shape(x), axis=axis)

    def reshape(self, x: int, *shape: int) -> int:
        return self.add("RESHAPE", [x], shape, new_shape=list(shape))

    def windows(self, x: int) -> int:
        batch, height, width, channels = self.shape(x)
        x = self.reshape(x, batch, height // 3, 3, width // 3, 3, channels)
        return self.reshape(self.transpose(x, (0, 1, 3, 2, 4, 5)), batch * height * width // 9, 9, channels)


@pytest.mark.device
@pytest.mark.quick(when=lambda batch: batch == 2)
@pytest.mark.parametrize("batch", [1, 2])
def test_shifted_windows_are_one_gather(batch: int) -> None:
    """There as rows of a layer, which another reader sees as windows, and back as an image, to which one is added."""
    m = Windows()
    x = m.conv(m.input((batch, 6, 9, 7)), out=8)
    y = m.windows(m.roll(m.roll(x, 1, 2), 2, 5))
    rows = m.reshape(y, prod(m.shape(y)[:-1]), 8)
    z = m.add("FULLY_CONNECTED", [rows, m.weights(8, 8)])
    z = m.transpose(m.reshape(z, batch, 2, 3, 3, 3, 8), (0, 1, 3, 2, 4, 5))
    z = m.roll(m.roll(m.reshape(z, batch, 6, 9, 8), 1, 4), 2, 4)
    merged = apply("gather_rows", m.graph(m.add("ADD", [x, z]), m.add("TANH", [y])))
    assert kinds(merged)["gather"] == 2
    assert kinds(merged)["concatenate"] == kinds(merged)["rearrange"] == 0


@pytest.mark.device
def test_parts_that_are_read_stay() -> None:
    """And a concatenation of two tensors, or of channels, is none of rows."""
    m = Windows()
    x = m.conv(m.input((1, 6, 9, 7)), out=8)
    part = m.cut(x, 1, 2, 6)
    y = m.add("CONCATENATION", [part, m.cut(x, 1, 0, 2)], m.shape(x), axis=1)
    channels = m.roll(x, 3, 3)
    both = m.add("CONCATENATION", [y, channels], (1, 12, 9, 8), axis=1)
    graph = m.graph(m.add("EXP", [part]), m.add("ABS", [both]))
    merged = apply("gather_rows", graph)
    assert kinds(merged)["gather"] == 1
    assert kinds(merged)["concatenate"] == 2
