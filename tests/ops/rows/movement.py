"""Rows of the operators that only move data: equal bits are asked of them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.ops import reference
from tests.ops.case import Net, Row, Tensor
from tests.ops.reference import SliceSpec
from tests.ops.strategies import BOOL, CHANNELS, SMALL, UP_TO_RANK_FOUR, Shapes, axes, axis, factorization, shapes
from tests.ops.tolerance import EXACT

_MARGIN = st.tuples(st.integers(0, 3), st.integers(0, 3))


def concatenation(net: Net, shape: Shapes = UP_TO_RANK_FOUR) -> Tensor:
    drawn = net.draw(shape)
    return concatenate(net, drawn, axis(net, len(drawn)))


def concatenate(net: Net, shape: tuple[int, ...], along: int) -> Tensor:
    """One to five tensors of ``shape`` but for their size ``along`` one axis; all but one may be constant."""
    tensors: list[Tensor] = []
    for _ in range(net.draw(st.integers(1, 5))):
        size = list(shape)
        size[along] = net.draw(CHANNELS if along in (-1, len(shape) - 1) else SMALL)
        constant = bool(tensors) and net.draw(st.sampled_from((False, False, True)))
        tensors.append((net.constant if constant else net.input)(net.normal(size)))
    tensors = net.draw(st.permutations(tensors))
    value = np.concatenate([tensor.value for tensor in tensors], along)
    return net.op("CONCATENATION", tensors, value, {"axis": along}, activation="NONE")


def pad(net: Net, shape: Shapes = UP_TO_RANK_FOUR) -> Tensor:
    x = net.input(net.normal(net.draw(shape)))
    return pad_by(net, x, [net.draw(_MARGIN) for _ in x.shape])


def pad_by(net: Net, x: Tensor, margins: list[tuple[int, int]]) -> Tensor:
    value = np.pad(x.value, margins)
    return net.op("PAD", [x, net.integers(margins)], value, version=4 if len(margins) > 4 else 1)


def padv2(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(UP_TO_RANK_FOUR)))
    margins = np.array([net.draw(_MARGIN) for _ in x.shape], np.int32)
    fill = net.draw(st.sampled_from((1.5, 0.0, -2.0)))
    value = np.pad(x.value, margins, constant_values=fill)
    return net.op("PADV2", [x, net.constant(margins), net.constant(np.array([fill], np.float32))], value)


def slice_(net: Net, runtime: bool = False) -> Tensor:
    x = net.input(net.normal(net.draw(shapes())))
    begin, size = [], []
    for extent in x.shape:
        begin.append(net.draw(st.integers(0, extent - 1)))
        sizes = st.integers(1, extent - begin[-1])
        size.append(net.draw(sizes if runtime else st.one_of(st.just(-1), sizes)))  # -1: all that is left
    ends = (None if s == -1 else b + s for b, s in zip(begin, size, strict=True))
    value = x.value[tuple(map(slice, begin, ends))]
    start = (net.input if runtime else net.constant)(np.array(begin, np.int32))
    return net.op("SLICE", [x, start, net.integers(size)], value)


def transpose(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(shapes())))
    order = net.draw(st.permutations(range(len(x.shape))))
    return net.op("TRANSPOSE", [x, net.integers(order)], np.transpose(x.value, order))


def reshape(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(shapes())))
    shape = factorization(net, x.value.size)
    target = list(shape)
    if net.draw(BOOL):
        target[net.draw(st.integers(0, len(shape) - 1))] = -1
    return net.op("RESHAPE", [x, net.integers(target)], x.value.reshape(shape), {"new_shape": target})


def squeeze(net: Net) -> Tensor:
    shape = list(net.draw(shapes(min_rank=2)))
    ones = axes(net, len(shape))
    for one in ones:
        shape[one] = 1
    listed = ones if net.draw(BOOL) else []  # no list means every axis of size 1
    x = net.input(net.normal(shape))
    return net.op("SQUEEZE", [x], np.squeeze(x.value, tuple(listed) or None), {"squeeze_dims": listed})


def strided_slice(
    net: Net, shape: Shapes = UP_TO_RANK_FOUR, masks: st.SearchStrategy[bool] = BOOL, runtime: bool = False
) -> Tensor:
    x = net.input(net.normal(net.draw(shape)))
    spec = _slice_spec(net, x.shape, net.draw(masks), runtime)
    begin, end = ((net.input if runtime else net.constant)(np.array(b, np.int32)) for b in (spec.begin, spec.end))
    return net.op(
        "STRIDED_SLICE",
        [x, begin, end, net.integers(spec.strides)],
        reference.strided_slice(x.value, spec),
        {
            "begin_mask": spec.begin_mask,
            "end_mask": spec.end_mask,
            "ellipsis_mask": spec.ellipsis_mask,
            "new_axis_mask": spec.new_axis_mask,
            "shrink_axis_mask": spec.shrink_axis_mask,
        },
        version=6 if spec.ellipsis_mask or spec.new_axis_mask else 4 if len(x.shape) > 4 else 1,
    )


def slice_from(net: Net) -> Tensor:
    """A strided slice whose ends are counted from its begin, which may be computed; then all of it lies inside."""
    x, runtime = net.input(net.normal(net.draw(UP_TO_RANK_FOUR))), net.draw(BOOL)
    entries = [
        (int(net.rng.integers(0, d)), int(net.rng.integers(1, d + 3)), int(net.rng.integers(1, 3))) for d in x.shape
    ]
    if runtime:
        entries = [(b, min(extent, d - b), s) for (b, extent, s), d in zip(entries, x.shape, strict=True)]
    begin, extents, strides = (np.array(column, np.int32) for column in zip(*entries, strict=True))
    index = tuple(slice(b, b + extent, s) for b, extent, s in entries)
    given = (net.input if runtime else net.constant)(begin - (np.array(x.shape, np.int32) if net.draw(BOOL) else 0))
    if np.any(given.value < 0) or np.any(begin + extents > x.shape):
        net.litert_differs = "it reads past the input's end, and takes what negative begins give for an end"
    inputs = [x, given, net.constant(extents), net.constant(strides)]
    return net.op("STRIDED_SLICE", inputs, x.value[index], {"offset": True}, version=8)


class _Entry(NamedTuple):
    """The constants and masks of STRIDED_SLICE at one position."""

    begin: int
    end: int
    stride: int
    masks: frozenset[str] = frozenset()


# An ellipsis and a new axis override their constants, which are there to be misread.
_ELLIPSIS = _Entry(2, 1, 1, frozenset({"ellipsis"}))
_NEW_AXIS = _Entry(3, -1, 1, frozenset({"new_axis"}))


def _slice_spec(net: Net, shape: tuple[int, ...], masks: bool, runtime: bool) -> SliceSpec:
    """A slice of at least one element; with ``masks``, it has an ellipsis, and axes may go or be new.

    runtime: its bounds do not decide how much it takes of an axis.
    """
    entries = [_range(net, size) for size in shape]
    if runtime:
        whole = frozenset({"begin", "end"})
        entries = [_shrunk(net, e) if net.draw(BOOL) else e._replace(masks=whole) for e in entries]
    if masks:
        entries = [_shrunk(net, entry) if not runtime and net.draw(BOOL) else entry for entry in entries]
        bounds = st.integers(0, len(entries))
        first, last = sorted(net.draw(st.tuples(bounds, bounds)))
        entries[first:last] = [_ELLIPSIS]
        if first == last:
            net.litert_differs = "its ellipsis stands for at least one axis"
        if net.draw(BOOL):
            entries.insert(net.draw(st.integers(0, len(entries))), _NEW_AXIS)
    else:
        spoken_of = net.draw(st.integers(1, len(entries)))
        del entries[spoken_of:]  # the axes at the end that no entry speaks of stay whole

    def mask(name: str) -> int:
        return sum(1 << i for i, entry in enumerate(entries) if name in entry.masks)

    return SliceSpec(
        begin=[entry.begin for entry in entries],
        end=[entry.end for entry in entries],
        strides=[entry.stride for entry in entries],
        begin_mask=mask("begin"),
        end_mask=mask("end"),
        ellipsis_mask=mask("ellipsis"),
        new_axis_mask=mask("new_axis"),
        shrink_axis_mask=mask("shrink_axis"),
    )


def _range(net: Net, size: int) -> _Entry:
    """Part of an axis, forwards or backwards; its ends count from either side or lie out of bounds."""
    stride = net.draw(st.sampled_from((1, 2, 3, -1, -2)))
    low, high = sorted(net.draw(st.tuples(*[st.integers(0, size - 1)] * 2)))
    begin, end = (low, high + 1) if stride > 0 else (high, low - 1)
    if net.draw(BOOL):
        begin -= size
    if end < 0:  # one before the first: -1 would mean the last
        end = -size - 1
    elif end >= size:
        end += net.draw(st.sampled_from((0, 3)))
    elif net.draw(BOOL):
        end -= size
    return _Entry(begin, end, stride, net.draw(st.frozensets(st.sampled_from(("begin", "end")))))


def _shrunk(net: Net, entry: _Entry) -> _Entry:
    """The axis of ``entry`` reduced to the element at its begin, or to the first if that is masked."""
    masks = net.draw(st.frozensets(st.sampled_from(("begin", "end"))))
    return _Entry(entry.begin, entry.end, 1, masks | {"shrink_axis"})


ROWS = (
    Row("concatenation", "CONCATENATION", concatenation, EXACT),
    Row("pad", "PAD", pad, EXACT),
    Row("padv2", "PADV2", padv2, EXACT),
    Row("reshape", "RESHAPE", reshape, EXACT),
    Row("slice", "SLICE", slice_, EXACT),
    Row("slice_runtime", "SLICE", partial(slice_, runtime=True), EXACT),
    Row("squeeze", "SQUEEZE", squeeze, EXACT),
    Row("strided_slice", "STRIDED_SLICE", strided_slice, EXACT),
    Row("strided_slice_from", "STRIDED_SLICE", slice_from, EXACT),
    Row("strided_slice_runtime", "STRIDED_SLICE", partial(strided_slice, runtime=True), EXACT),
    Row("transpose", "TRANSPOSE", transpose, EXACT),
)
