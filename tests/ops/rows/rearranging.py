"""Rows of the operators that join, split, repeat, reorder and look up, with any element type: equal bits are asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops import reference
from tests.ops.case import Net, Row, Tensor
from tests.ops.strategies import BATCH, BOOL, CHANNELS, SMALL, UP_TO_RANK_FOUR, Shapes, axis, feature_map, shapes
from tests.ops.tolerance import EXACT

# Element types that LiteRT's CPU kernels take, too; the device takes them all alike.
_SIGNED = ("float32", "int32", "int8", "int16")
_INTEGERS = (*_SIGNED, "int64", "uint8")
_ALL = (*_INTEGERS, "bool")
_INDEX_TYPES = st.sampled_from((np.int32, np.int64))
_MARGIN = st.tuples(st.integers(0, 3), st.integers(0, 3))
_PART = st.sampled_from((3, 1, 2, 4, 0))


def values(net: Net, shape: Sequence[int], types: Sequence[str] = _ALL) -> NDArray[Any]:
    """Numbers of a drawn element type."""
    dtype = np.dtype(net.draw(st.sampled_from(types)))
    if dtype.kind == "f":
        return net.normal(shape)
    if dtype.kind == "b":
        return net.rng.random(shape) < 0.5
    return net.rng.integers(0 if dtype.kind == "u" else -100, 100, shape).astype(dtype)


def data(net: Net, shape: Sequence[int], types: Sequence[str] = _ALL) -> Tensor:
    """An input of the model with numbers of a drawn element type."""
    return net.input(values(net, shape, types))


def expand_dims(net: Net) -> Tensor:
    x = data(net, net.draw(UP_TO_RANK_FOUR))
    along = axis(net, len(x.shape) + 1)
    return net.op("EXPAND_DIMS", [x, net.integers([along])], np.expand_dims(x.value, along))


def pack(net: Net) -> Tensor:
    shape = net.draw(UP_TO_RANK_FOUR)
    along, first = axis(net, len(shape) + 1), values(net, shape, _INTEGERS)
    parts = [first, *(net.rng.permuted(first) for _ in range(net.draw(st.integers(0, 3))))]
    tensors = [net.input(part) if i == 0 or net.draw(BOOL) else net.constant(part) for i, part in enumerate(parts)]
    options = {"axis": along, "values_count": len(tensors)}
    return net.op("PACK", tensors, np.stack([t.value for t in tensors], along), options)


def _all_but_last(net: Net, tensors: Sequence[Tensor]) -> Tensor:
    """The last of several outputs; the others become outputs of the model."""
    for tensor in tensors[:-1]:
        net.output(tensor)
    return tensors[-1]


def unpack(net: Net) -> Tensor:
    shape = list(net.draw(UP_TO_RANK_FOUR))
    along = axis(net, len(shape))
    shape[along] = net.draw(st.integers(1, 5))
    x = data(net, shape, (*_SIGNED, "bool"))
    layers = [np.take(x.value, i, along) for i in range(shape[along])]
    return _all_but_last(net, net.ops("UNPACK", [x], layers, {"axis": along, "num": len(layers)}))


def split(net: Net) -> Tensor:
    shape, count = list(net.draw(UP_TO_RANK_FOUR)), net.draw(st.integers(1, 4))
    along = axis(net, len(shape))
    shape[along] = count * net.draw(SMALL)
    x = data(net, shape, _SIGNED)
    parts = np.split(x.value, count, along)
    return _all_but_last(net, net.ops("SPLIT", [net.integers([along]), x], parts, {"num_splits": count}))


def split_v(net: Net) -> Tensor:
    shape, sizes = list(net.draw(UP_TO_RANK_FOUR)), net.draw(st.lists(_PART, max_size=3))
    sizes.append(net.draw(SMALL))  # the last part is what is checked further
    along = axis(net, len(shape))
    shape[along] = sum(sizes)
    x = data(net, shape, _SIGNED)
    parts = np.split(x.value, np.cumsum(sizes)[:-1], along)
    if net.draw(BOOL):
        sizes[net.draw(st.integers(0, len(sizes) - 1))] = -1  # all that is left
    inputs = [x, net.integers(sizes), net.integers(along)]
    return _all_but_last(net, net.ops("SPLIT_V", inputs, parts, {"num_splits": len(sizes)}))


def mirror_pad(net: Net) -> Tensor:
    x = data(net, net.draw(UP_TO_RANK_FOUR), _INTEGERS)
    mode = net.draw(st.sampled_from(("REFLECT", "SYMMETRIC")))
    limits = [size - (mode == "REFLECT") for size in x.shape]
    margins = [tuple(min(m, limit) for m in net.draw(_MARGIN)) for limit in limits]
    value = reference.mirror_pad(x.value, margins, mode)
    return net.op("MIRROR_PAD", [x, net.integers(margins)], value, {"mode": mode})


def resize_nearest_neighbor(net: Net) -> Tensor:
    side = st.integers(1, 12)
    x = data(net, net.draw(st.tuples(BATCH, side, side, CHANNELS)), ("float32", "int8", "uint8"))
    size = net.draw(st.tuples(side, side))
    corners, centers = net.draw(st.sampled_from(((False, False), (True, False), (False, True))))
    return net.op(
        "RESIZE_NEAREST_NEIGHBOR",
        [x, net.integers(size)],
        reference.resize_nearest_neighbor(x.value, size, corners, centers),
        {"align_corners": corners, "half_pixel_centers": centers},
        version=3 if centers else 1,
    )


def resize_to_shape(net: Net) -> Tensor:
    """The size is computed from the shape of another input: all of it is known at compile time."""
    x, other = feature_map(net), feature_map(net)
    shape = net.op("SHAPE", [other], np.array(other.shape, np.int32), {"out_type": "INT32"})
    bounds = [net.integers([n]) for n in (1, 2, 1)]
    height = net.op("STRIDED_SLICE", [shape, *bounds], np.array(other.shape[1], np.int32), {"shrink_axis_mask": 1})
    size = net.op("PACK", [height, height], np.array([other.shape[1]] * 2, np.int32), {"values_count": 2})
    value = reference.resize_nearest_neighbor(x.value, (other.shape[1],) * 2, False, False)
    return net.op("RESIZE_NEAREST_NEIGHBOR", [x, size], value)


def tile(net: Net) -> Tensor:
    x = data(net, net.draw(UP_TO_RANK_FOUR), ("float32", "int32", "int64", "uint8", "bool"))
    multiples = [net.draw(st.integers(1, 3)) for _ in x.shape]
    return net.op("TILE", [x, net.integers(multiples)], np.tile(x.value, multiples))


def broadcast_to(net: Net) -> Tensor:
    shape = net.draw(shapes())
    ones = [1 if net.draw(BOOL) else size for size in shape]
    x = data(net, ones[net.draw(st.integers(0, len(shape))) :], ("float32", "int32", "int8", "bool"))
    return net.op("BROADCAST_TO", [x, net.integers(shape)], np.broadcast_to(x.value, shape), version=2)


def reverse(net: Net) -> Tensor:
    x = data(net, net.draw(UP_TO_RANK_FOUR), ("float32", "int32", "int64", "uint8", "bool"))
    along = net.draw(st.integers(0, len(x.shape) - 1))
    return net.op("REVERSE_V2", [x, net.integers([along])], np.flip(x.value, along))


def reverse_sequence(net: Net) -> Tensor:
    """Lengths from none to all of the axis of time, known or not."""
    shape = net.draw(shapes(min_rank=2, max_rank=4))
    time, batch = net.draw(st.permutations(range(len(shape))))[:2]
    x = data(net, shape, ("float32", "int32", "int64", "uint8"))
    lengths = net.rng.integers(0, shape[time] + 1, shape[batch]).astype(net.draw(st.sampled_from(("int32", "int64"))))
    value = x.value.copy()
    source, result = (np.moveaxis(v, (batch, time), (0, 1)) for v in (x.value, value))
    for row, length in enumerate(lengths):
        result[row, :length] = source[row, :length][::-1]
    options = {"seq_dim": time, "batch_dim": batch}
    return net.op("REVERSE_SEQUENCE", [x, net.input(lengths)], value, options)


def depth_to_space(net: Net) -> Tensor:
    block = net.draw(st.integers(1, 3))
    batch, height, width, channels = net.draw(st.tuples(BATCH, SMALL, SMALL, st.sampled_from((5, 1, 3, 4, 8))))
    x = data(net, (batch, height, width, channels * block**2), ("float32", "int32", "int8"))
    return net.op("DEPTH_TO_SPACE", [x], reference.depth_to_space(x.value, block), {"block_size": block})


def space_to_depth(net: Net) -> Tensor:
    block = net.draw(st.integers(1, 3))
    batch, height, width, channels = net.draw(st.tuples(BATCH, SMALL, SMALL, CHANNELS))
    x = data(net, (batch, height * block, width * block, channels), ("float32", "int32", "int8"))
    return net.op("SPACE_TO_DEPTH", [x], reference.space_to_depth(x.value, block), {"block_size": block})


def _block(net: Net) -> tuple[list[int], list[tuple[int, int]]]:
    """A block along height, or height and width, and two margins for each of them."""
    count = net.draw(st.integers(1, 2))
    return [net.draw(st.integers(1, 3)) for _ in range(count)], [net.draw(_MARGIN) for _ in range(count)]


def space_to_batch(net: Net) -> Tensor:
    block, margins = _block(net)
    spatial = []
    for size, (before, after) in zip(block, margins, strict=True):
        whole = -(-(net.draw(SMALL) + before + after) // size) * size
        spatial.append(whole - before - after)
    x = data(net, (net.draw(BATCH), *spatial, net.draw(CHANNELS)), ("float32", "int32", "int8"))
    value = reference.space_to_batch(x.value, block, margins)
    return net.op("SPACE_TO_BATCH_ND", [x, net.integers(block), net.integers(margins)], value)


def batch_to_space(net: Net) -> Tensor:
    block, margins = _block(net)
    spatial = [-(-(1 + sum(pair)) // size) + net.draw(SMALL) for size, pair in zip(block, margins, strict=True)]
    x = data(net, (net.draw(BATCH) * math.prod(block), *spatial, net.draw(CHANNELS)), ("float32", "int32", "int8"))
    value = reference.batch_to_space(x.value, block, margins)
    return net.op("BATCH_TO_SPACE_ND", [x, net.integers(block), net.integers(margins)], value)


def _indices(net: Net, shape: Sequence[int], limit: int | NDArray[np.int64]) -> Tensor:
    """Indices below ``limit``, computed by the host or known at compile time."""
    indices = net.rng.integers(0, limit, shape).astype(net.draw(_INDEX_TYPES))
    return net.input(indices) if net.draw(BOOL) else net.constant(indices)


def gather(net: Net, shape: Shapes = UP_TO_RANK_FOUR) -> Tensor:
    x = data(net, net.draw(shape), ("float32", "int32", "int8", "bool"))
    along = net.draw(st.integers(0, len(x.shape) - 1))
    batch = net.draw(st.integers(0, along))
    indices = _indices(net, (*x.shape[:batch], *net.draw(st.lists(SMALL, max_size=2))), x.shape[along])
    value = reference.gather(x.value, indices.value, along, batch)
    along -= len(x.shape) if net.draw(BOOL) else 0
    return net.op("GATHER", [x, indices], value, {"axis": along, "batch_dims": batch}, version=5)


def gather_nd(net: Net) -> Tensor:
    x = data(net, net.draw(UP_TO_RANK_FOUR), ("float32", "int32", "int8"))
    depth = net.draw(st.integers(1, len(x.shape)))
    limits = np.array(x.shape[:depth])
    indices = _indices(net, (*net.draw(st.lists(SMALL, min_size=1, max_size=2)), depth), limits)
    return net.op("GATHER_ND", [x, indices], x.value[tuple(np.moveaxis(indices.value, -1, 0))])


def embedding_lookup(net: Net) -> Tensor:
    table = net.normal((net.draw(SMALL), *net.draw(st.lists(SMALL, max_size=2)), net.draw(CHANNELS)))
    rows = net.constant(table) if net.draw(BOOL) else net.input(table)
    ids = net.input(net.rng.integers(0, len(table), net.draw(SMALL)).astype(np.int32))
    return net.op("EMBEDDING_LOOKUP", [ids, rows], rows.value[ids.value])


def one_hot(net: Net) -> Tensor:
    shape, depth = net.draw(shapes(min_rank=0, max_rank=3)), net.draw(CHANNELS)
    # Beyond either end of the depth there is nothing to be hot.
    indices = net.input(net.rng.integers(-1, depth + 1, shape).astype(np.int32))
    on_off = values(net, (2,), ("float32", "int32", "int8", "bool"))
    on, off = (net.constant(np.array(v)) for v in on_off)
    along = net.draw(st.sampled_from((-1, *range(len(shape) + 1))))
    value = reference.one_hot(indices.value, depth, on.value, off.value, along)
    return net.op("ONE_HOT", [indices, net.integers(depth), on, off], value, {"axis": along})


def dynamic_update_slice(net: Net) -> Tensor:
    x = data(net, net.draw(UP_TO_RANK_FOUR), ("float32",))
    size = [net.draw(st.integers(1, extent)) for extent in x.shape]
    update = net.input(net.normal(size))
    # Starts that leave no room for the update are moved until they do.
    start = net.input(np.array([net.draw(st.integers(-1, extent)) for extent in x.shape], np.int32))
    value = reference.dynamic_update_slice(x.value, update.value, start.value)
    return net.op("DYNAMIC_UPDATE_SLICE", [x, update, start], value)


def fill(net: Net) -> Tensor:
    shape = net.draw(shapes())
    value = np.array(values(net, (), ("float32", "int32", "bool")))
    number = net.input(value) if net.draw(BOOL) else net.constant(value)
    return net.op("FILL", [net.integers(shape), number], np.full(shape, number.value))


def range_(net: Net) -> Tensor:
    """Eighths, which are sums of themselves without rounding."""
    start, delta = net.draw(st.integers(-20, 20)), net.draw(st.sampled_from((1, 3, -2)))
    missing = net.draw(st.integers(0, abs(delta) - 1))  # of the last step
    limit = start + delta * net.draw(st.integers(1, 40)) - missing * (1 if delta > 0 else -1)
    numbers = np.array([start, limit, delta])
    numbers = numbers.astype(np.int32) if net.draw(BOOL) else (numbers / 8).astype(np.float32)
    value = np.arange(*numbers, dtype=numbers.dtype)
    return net.op("RANGE", [net.constant(np.array(n)) for n in numbers], value)


def shape_(net: Net) -> Tensor:
    x = data(net, net.draw(shapes()))
    name = net.draw(st.sampled_from(("INT32", "INT64")))
    return net.op("SHAPE", [x], np.array(x.shape, name.lower()), {"out_type": name})


def rank(net: Net) -> Tensor:
    x = data(net, net.draw(shapes()))
    return net.op("RANK", [x], np.array(len(x.shape), np.int32))


def zeros_like(net: Net) -> Tensor:
    x = data(net, net.draw(shapes()), ("float32", "int32", "int64"))
    return net.op("ZEROS_LIKE", [x], np.zeros_like(x.value))


def matrix_diag(net: Net) -> Tensor:
    x = data(net, net.draw(shapes(max_rank=3)), _INTEGERS)
    value = np.zeros((*x.shape, x.shape[-1]), x.value.dtype)
    value[..., range(x.shape[-1]), range(x.shape[-1])] = x.value
    return net.op("MATRIX_DIAG", [x], value)


def matrix_set_diag(net: Net) -> Tensor:
    """Diagonals are set in matrices of any shape."""
    x = data(net, net.draw(shapes(min_rank=2, max_rank=4)), _INTEGERS)
    size = min(x.shape[-2:])
    diagonal = net.input(np.arange(np.prod((*x.shape[:-2], size))).reshape((*x.shape[:-2], size)).astype(as_given(x)))
    value = x.value.copy()
    value[..., range(size), range(size)] = diagonal.value
    return net.op("MATRIX_SET_DIAG", [x, diagonal], value)


def as_given(x: Tensor) -> str:
    """The element type of a tensor in the file."""
    return "float32" if x.value.dtype.kind == "f" else x.value.dtype.name


ROWS = (
    Row("batch_to_space", "BATCH_TO_SPACE_ND", batch_to_space, EXACT),
    Row("broadcast_to", "BROADCAST_TO", broadcast_to, EXACT),
    Row("reverse_sequence", "REVERSE_SEQUENCE", reverse_sequence, EXACT),
    Row("depth_to_space", "DEPTH_TO_SPACE", depth_to_space, EXACT),
    Row("dynamic_update_slice", "DYNAMIC_UPDATE_SLICE", dynamic_update_slice, EXACT),
    Row("embedding_lookup", "EMBEDDING_LOOKUP", embedding_lookup, EXACT),
    Row("expand_dims", "EXPAND_DIMS", expand_dims, EXACT),
    Row("fill", "FILL", fill, EXACT),
    Row("gather", "GATHER", gather, EXACT),
    Row("gather_nd", "GATHER_ND", gather_nd, EXACT),
    Row("matrix_diag", "MATRIX_DIAG", matrix_diag, EXACT),
    Row("matrix_set_diag", "MATRIX_SET_DIAG", matrix_set_diag, EXACT),
    Row("mirror_pad", "MIRROR_PAD", mirror_pad, EXACT),
    Row("one_hot", "ONE_HOT", one_hot, EXACT),
    Row("pack", "PACK", pack, EXACT),
    Row("rank", "RANK", rank, EXACT),
    Row("range", "RANGE", range_, EXACT),
    Row("resize_nearest_neighbor", "RESIZE_NEAREST_NEIGHBOR", resize_nearest_neighbor, EXACT),
    Row("resize_to_shape", "RESIZE_NEAREST_NEIGHBOR", resize_to_shape, EXACT),
    Row("reverse", "REVERSE_V2", reverse, EXACT),
    Row("shape", "SHAPE", shape_, EXACT),
    Row("space_to_batch", "SPACE_TO_BATCH_ND", space_to_batch, EXACT),
    Row("space_to_depth", "SPACE_TO_DEPTH", space_to_depth, EXACT),
    Row("split", "SPLIT", split, EXACT),
    Row("split_v", "SPLIT_V", split_v, EXACT),
    Row("tile", "TILE", tile, EXACT),
    Row("unpack", "UNPACK", unpack, EXACT),
    Row("zeros_like", "ZEROS_LIKE", zeros_like, EXACT),
)
