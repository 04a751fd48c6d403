"""Steps that move elements, of which equal bits are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tests.ops import reference
from tests.ops.case import Tensor
from tests.safety.drawn.drawing import LARGEST, Drawing, Shape

Step = Callable[[Drawing], Iterable[Tensor]]


def reshape(d: Drawing) -> Iterable[Tensor]:
    x = d.operand()
    yield d.reshaped(x, d.factored(x.value.size))


def squeeze(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1)
    ones = [i for i, size in enumerate(x.shape) if size == 1]
    kept = [i for i in ones if d.chance(0.7)]
    if kept:
        yield d.net.op("SQUEEZE", [x], x.value.squeeze(tuple(kept)), {"squeeze_dims": kept})


def expand(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(0, 5)
    axis = d.random.randint(0, len(x.shape))
    yield d.net.op("EXPAND_DIMS", [x, d.net.integers(axis)], np.expand_dims(x.value, axis))


def transpose(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(2)
    order = list(range(len(x.shape)))
    d.random.shuffle(order)
    yield d.net.op("TRANSPOSE", [x, d.net.integers(order)], x.value.transpose(order))


def slice_(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    begin, size = [], []
    only = d.random.randrange(len(x.shape)) if d.chance(0.5) else None
    for axis, extent in enumerate(x.shape):
        whole = axis != only if only is not None else d.chance(0.3)
        begin.append(0 if whole or d.chance(0.4) else d.random.randrange(extent))
        size.append(extent if whole else d.random.randint(1, extent - begin[-1]))
    value = x.value[tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))]
    yield d.net.op("SLICE", [x, d.net.integers(begin), d.net.integers(size)], value)


def strided_slice(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    begin, end, step, kept, shrunk = [], [], [], [], 0
    for axis, extent in enumerate(x.shape):
        first, last = sorted(d.random.choices(range(extent), k=2)) if d.chance(0.5) else (0, extent - 1)
        if d.chance(0.2):
            shrunk |= 1 << axis
            begin, end, step = [*begin, first], [*end, first + 1], [*step, 1]
            kept.append(first)
        elif d.chance(0.15) and first:
            begin, end, step = [*begin, last], [*end, first - 1], [*step, -d.one_of((1, 2))]
            kept.append(slice(last, first - 1, step[-1]))
        else:
            begin, end, step = [*begin, first], [*end, last + 1], [*step, d.one_of((1, 1, 1, 2, 3))]
            kept.append(slice(first, last + 1, step[-1]))
    bounds = map(d.net.integers, (begin, end, step))
    yield d.net.op("STRIDED_SLICE", [x, *bounds], x.value[tuple(kept)], {"shrink_axis_mask": shrunk})


def split(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    axis = d.random.randrange(len(x.shape))
    parts = d.one_of([n for n in range(1, 6) if x.shape[axis] % n == 0])
    values = np.split(x.value, parts, axis)
    yield from d.net.ops("SPLIT", [d.net.integers(axis), x], values, {"num_splits": parts})


def split_v(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    axis = d.random.randrange(len(x.shape))
    if (size := x.shape[axis]) > 1:
        cuts = sorted(set(d.random.choices(range(1, size), k=d.random.randint(1, 3))))
        values = np.split(x.value, cuts, axis)
        sizes = [v.shape[axis] for v in values]
        inputs = [x, d.net.integers(sizes), d.net.integers(axis)]
        yield from d.net.ops("SPLIT_V", inputs, values, {"num_splits": len(sizes)})


def unpack(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    axis = d.one_of([i for i, size in enumerate(x.shape) if size <= 12] or [-1])
    if axis >= 0:
        values = [np.take(x.value, i, axis) for i in range(x.shape[axis])]
        yield from d.net.ops("UNPACK", [x], values, {"num": len(values), "axis": axis})


def margins(d: Drawing, shape: Shape, most: int = 3) -> list[tuple[int, int]]:
    return [(d.random.randint(0, most), d.random.randint(0, most)) if d.chance(0.5) else (0, 0) for _ in shape]


def pad(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    around = margins(d, x.shape)
    value = np.pad(x.value, around)
    if value.size <= LARGEST:
        yield d.net.op("PAD", [x, d.net.integers(around)], value)


def pad_with(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 4)
    around, fill = margins(d, x.shape), np.array(d.one_of((1.5, -2.0, 0.0)), np.float32)
    value = np.pad(x.value, around, constant_values=fill)
    if value.size <= LARGEST:
        yield d.net.op("PADV2", [x, d.net.integers(around), d.net.constant(fill.reshape(1))], value)


def mirror_pad(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 4)
    around = [(d.random.randint(0, min(2, n - 1)), d.random.randint(0, min(2, n - 1))) for n in x.shape]
    value = np.pad(x.value, around, "reflect")
    if value.size <= LARGEST:
        yield d.net.op("MIRROR_PAD", [x, d.net.integers(around)], value, {"mode": "REFLECT"})


def concatenation(d: Drawing) -> Iterable[Tensor]:
    """A concatenation of tensors that differ in one axis only, of the same one twice, or of new ones."""
    x = d.operand(1, 5)
    axis = d.random.randrange(len(x.shape))
    fit = [y for y in d.tensors if _without(y.shape, axis, len(x.shape)) == _without(x.shape, axis, len(x.shape))]
    parts = [d.one_of(fit) if d.chance(0.6) else d.other(_resized(x.shape, axis, d.size())) for _ in range(3)]
    parts = [x, *parts[: d.random.randint(1, 3)]]
    d.random.shuffle(parts)
    value = np.concatenate([y.value for y in parts], axis)
    if value.size <= LARGEST:
        yield d.net.op("CONCATENATION", parts, value, {"axis": axis}, activation="NONE")


def _without(shape: Shape, axis: int, rank: int) -> Shape | None:
    return (*shape[:axis], *shape[axis + 1 :]) if len(shape) == rank else None


def _resized(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def pack(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(0, 4)
    axis = d.random.randint(0, len(x.shape))
    fit = [y for y in d.tensors if y.shape == x.shape]
    parts = [x, *(d.one_of(fit) if d.chance(0.7) else d.other(x.shape) for _ in range(d.random.randint(0, 3)))]
    value = np.stack([y.value for y in parts], axis)
    if value.size <= LARGEST:
        yield d.net.op("PACK", parts, value, {"axis": axis, "values_count": len(parts)})


def tile(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    times = [d.one_of((1, 1, 2, 3)) for _ in x.shape]
    value = np.tile(x.value, times)
    if value.size <= LARGEST:
        yield d.net.op("TILE", [x, d.net.integers(times)], value)


def broadcast_to(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(0, 4)
    shape = (*d.shape(0, 1), *(d.size() if n == 1 else n for n in x.shape))
    if np.prod(shape) <= LARGEST and shape:
        yield d.net.op("BROADCAST_TO", [x, d.net.integers(shape)], np.broadcast_to(x.value, shape), version=2)


def gather(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    axis = d.random.randrange(len(x.shape))
    index = np.array([d.random.randrange(x.shape[axis]) for _ in range(d.random.randint(1, 5))], np.int32)
    yield d.net.op("GATHER", [x, d.net.constant(index)], np.take(x.value, index, axis), {"axis": axis})


def update(d: Drawing) -> Iterable[Tensor]:
    """New elements from a place on, which is a constant or an input, and may be too far off."""
    x = d.operand(1, 5)
    shape = tuple(size if d.chance(0.5) else d.random.randint(1, size) for size in x.shape)
    new = d.other(shape)
    start = np.array([d.random.randint(-1, size) for size in x.shape], np.int32)
    place = d.net.integers(start) if d.chance(0.4) else d.net.input(start)
    value = reference.dynamic_update_slice(x.value, new.value, start)
    yield d.net.op("DYNAMIC_UPDATE_SLICE", [x, new, place], value)


def reverse(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 5)
    axis = d.random.randrange(len(x.shape))
    yield d.net.op("REVERSE_V2", [x, d.net.integers([axis])], np.flip(x.value, axis))


def depth_and_space(d: Drawing) -> Iterable[Tensor]:
    x = d.image()
    _, height, width, channels = x.shape
    if height % 2 == width % 2 == 0:
        yield d.net.op("SPACE_TO_DEPTH", [x], reference.space_to_depth(x.value, 2), {"block_size": 2})
    elif channels % 4 == 0:
        yield d.net.op("DEPTH_TO_SPACE", [x], reference.depth_to_space(x.value, 2), {"block_size": 2})


MOVEMENTS: tuple[Step, ...] = (
    reshape, squeeze, expand, transpose, slice_, strided_slice, split, split_v, unpack, pad, pad_with, mirror_pad,
    concatenation, pack, tile, broadcast_to, gather, update, reverse, depth_and_space,
)  # fmt: skip
