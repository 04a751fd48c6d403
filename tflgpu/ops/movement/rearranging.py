"""Operators that join, split, repeat and reorder: each element of a result is an element of an input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Input, Tensor, Value, broadcasts_to
from tflgpu.graph.layout import Shape
from tflgpu.ops.arithmetic.scan import true_places
from tflgpu.ops.declaration import ANY, MANY, Emitter, Site, axis_option, declare, judged, normal_axis, numbers, static
from tflgpu.ops.image.resize import size_reasons
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange, mixed_types, reshape_node
from tflgpu.ops.sized import REST, Amount, Number, Refused, Results, SizedOperation, sized_shape

_FLOAT32 = np.float32


def _expand_axis(site: Site) -> int | None:
    return normal_axis(numbers(site, 1)[0], len(site.input(0).shape) + 1)


def _expand_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "axis")
    if site.constant(1) is not None and _expand_axis(site) is None:
        yield f"its axis {numbers(site, 1)[0]} has no place in an input of shape {list(site.input(0).shape)}"


@declare("EXPAND_DIMS", versions=1, inputs=2, integers=(1,), types=ANY, by_parts=True, reasons=_expand_reasons)
def expand_dims(site: Site, emit: Emitter) -> Tensor:
    """Return the input with a new axis of size 1."""
    x, axis = site.input(0), judged(_expand_axis(site))
    return emit.node("reshape", [x], (*x.shape[:axis], 1, *x.shape[axis:]))


def _pack_reasons(site: Site) -> Iterator[str]:
    shapes = {t.shape for t in site.inputs if t is not None}
    if len(shapes) != 1:
        yield f"its inputs have different shapes, {', '.join(str(list(s)) for s in sorted(shapes))}"
    elif axis_option(site, new=1) is None:
        yield f"its axis {site.options['axis']} has no place in inputs of shape {list(*shapes)}"
    yield from mixed_types(site)


@declare("PACK", versions=5, inputs=(1, MANY), types=ANY, reasons=_pack_reasons)
def pack(site: Site, emit: Emitter) -> Tensor:
    """Tensors of one shape, one after another along a new axis."""
    inputs, axis = [t for t in site.inputs if t is not None], judged(axis_option(site, new=1))
    shape = inputs[0].shape
    layers = [emit.node("reshape", [t], (*shape[:axis], 1, *shape[axis:])) for t in inputs]
    if len(layers) == 1:
        return layers[0]
    return emit.node("concatenate", layers, (*shape[:axis], len(layers), *shape[axis:]), Concatenate(axis))


def _unpack_reasons(site: Site) -> Iterator[str]:
    axis, shape, count = axis_option(site), site.input(0).shape, len(site.output_shapes)
    if axis is None or shape[axis] != count:
        yield f"its axis {site.options.get('axis', 0)} of an input of shape {list(shape)} does not fall into {count}"


@declare("UNPACK", versions=6, inputs=1, types=ANY, empty=False, reasons=_unpack_reasons)
def unpack(site: Site, emit: Emitter) -> Sequence[Tensor]:
    """Return the slices of the input along an axis."""
    x, axis = site.input(0), judged(axis_option(site))
    shape = x.shape[:axis] + x.shape[axis + 1 :]

    def layer(place: int) -> Tensor:
        axes = [AxisMap(i if i < axis else i - 1) for i in range(len(x.shape))]
        axes[axis] = AxisMap(None, place)
        return emit.node("rearrange", [x], shape, Rearrange(tuple(axes)))

    return [layer(place) for place in range(x.shape[axis])]


def _parts(emit: Emitter, x: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    """Consecutive parts of ``x`` along ``axis``, of these sizes. A part without elements is a constant."""

    def part(start: int, size: int) -> Tensor:
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        if size == 0:
            return emit.constant(np.empty(shape, x.dtype))
        axes = tuple(AxisMap(i, start if i == axis else 0) for i in range(len(x.shape)))
        return emit.node("rearrange", [x], shape, Rearrange(axes))

    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return [part(start, size) for start, size in zip(starts, sizes, strict=True)]


def _split_axis(site: Site, axis_input: int, x: Tensor) -> int | None:
    return normal_axis(numbers(site, axis_input)[0], len(x.shape))


def _split_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 0, "axis")
    if site.constant(0) is None:
        return
    axis, shape, count = _split_axis(site, 0, site.input(1)), site.input(1).shape, len(site.output_shapes)
    if axis is None or shape[axis] % count:
        yield f"its axis {numbers(site, 0)[0]} of an input of shape {list(shape)} has no {count} equal parts"


@declare("SPLIT", versions=5, inputs=2, integers=(0,), types=ANY, reasons=_split_reasons)
def split(site: Site, emit: Emitter) -> Sequence[Tensor]:
    """Equal parts of the input along an axis."""
    x, count = site.input(1), len(site.output_shapes)
    axis = judged(_split_axis(site, 0, x))
    return _parts(emit, x, axis, [x.shape[axis] // count] * count)


def _split_v(site: Site) -> tuple[int, list[int]] | None:
    """Return the axis and the size of each part, one -1 resolved; None if they do not fit the input."""
    x, sizes = site.input(0), numbers(site, 1)
    axis = _split_axis(site, 2, x)
    if axis is None or sizes.count(-1) > 1 or len(sizes) != len(site.output_shapes):
        return None
    rest = x.shape[axis] - sum(s for s in sizes if s != -1)
    sizes = [rest if s == -1 else s for s in sizes]
    return (axis, sizes) if min(sizes) >= 0 and sum(sizes) == x.shape[axis] else None


def _split_v_reasons(site: Site) -> Iterator[str]:
    missing = [*static(site, 1, "sizes"), *static(site, 2, "axis")]
    yield from missing
    if not missing and _split_v(site) is None:
        axis, sizes, shape = numbers(site, 2)[0], numbers(site, 1), site.input(0).shape
        yield f"its axis {axis} of an input of shape {list(shape)} does not fall into parts of {sizes}"


@declare("SPLIT_V", versions=3, inputs=3, integers=(1, 2), types=ANY, reasons=_split_v_reasons)
def split_v(site: Site, emit: Emitter) -> Sequence[Tensor]:
    """Parts of given sizes of the input along an axis."""
    return _parts(emit, site.input(0), *judged(_split_v(site)))


_MIRROR_MODES = ("reflect", "symmetric")  # the schema's MirrorPadMode; numpy's names for the same


def _mirror_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "paddings")
    paddings, shape, mode = site.constant(1), site.input(0).shape, site.options.get("mode", 0)
    if mode not in range(len(_MIRROR_MODES)):
        yield f"its mode {mode} is neither REFLECT nor SYMMETRIC"
    elif paddings is None:
        return
    elif paddings.shape != (len(shape), 2) or paddings.min(initial=0) < 0:
        yield f"its paddings {paddings.tolist()} are not {len(shape)} pairs of non-negative numbers"
    elif any(max(pair) > d - (mode == 0) for pair, d in zip(paddings.tolist(), shape, strict=True)):
        yield f"its paddings {paddings.tolist()} are longer than the mirror image of an input of shape {list(shape)}"


@declare("MIRROR_PAD", versions=3, inputs=2, integers=(1,), types=ANY, reasons=_mirror_reasons)
def mirror_pad(site: Site, emit: Emitter) -> Tensor:
    """Return the input with its mirror image around it."""
    x, mode = site.input(0), _MIRROR_MODES[site.options.get("mode", 0)]
    pairs = [(int(a), int(b)) for a, b in site.known(1)]
    tables = [_mirrored(d, p, mode) if any(p) else None for d, p in zip(x.shape, pairs, strict=True)]
    return _take(emit, x, tables)


def _mirrored(size: int, padding: tuple[int, int], mode: str) -> Array:
    result: Array = np.pad(np.arange(size, dtype=np.int32), padding, mode=mode)  # type: ignore[call-overload]
    return result


def _take(emit: Emitter, x: Tensor, tables: Sequence[Array | None]) -> Tensor:
    """``x`` at the coordinates that a table lists for each axis; None keeps an axis as it is."""
    inputs, positions, shape = [x], list[Position](), list[int]()
    for i, table in enumerate(tables):
        if table is None:
            positions.append(follow(i))
        else:
            inputs.append(emit.constant(table))
            positions.append(Position((Lookup(len(inputs) - 1, (AxisMap(i),), None),)))
        shape.append(x.shape[i] if table is None else table.size)
    return emit.node("gather", inputs, tuple(shape), Gather(tuple(positions)))


@declare("RESIZE_NEAREST_NEIGHBOR", versions=4, inputs=2, integers=(1,), types=ANY, reasons=size_reasons)
def resize_nearest_neighbor(site: Site, emit: Emitter) -> Tensor:
    """Resizing to a constant size by the nearest pixel."""
    x, (height, width) = site.input(0), numbers(site, 1)
    corners, centers = bool(site.options.get("align_corners")), bool(site.options.get("half_pixel_centers"))
    rows, columns = (
        None if old == new else _nearest(old, new, corners, centers)
        for old, new in zip(x.shape[1:3], (height, width), strict=True)
    )
    return _take(emit, x, [None, rows, columns, None])


def _nearest(old: int, new: int, corners: bool, centers: bool) -> Array:
    """For each of ``new`` pixels the nearest of ``old``; in float32 as in TFLite, because rounding matters."""
    scale = _FLOAT32(old - 1) / _FLOAT32(new - 1) if corners and new > 1 else _FLOAT32(old) / _FLOAT32(new)
    place = (np.arange(new, dtype=_FLOAT32) + _FLOAT32(0.5 if centers else 0)) * scale
    nearest = np.floor(place + _FLOAT32(0.5)) if corners else np.floor(place)
    result: Array = np.minimum(nearest, old - 1).astype(np.int32)
    return result


def _tile_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "multiples")
    if site.constant(1) is not None:
        multiples, rank = numbers(site, 1), len(site.input(0).shape)
        if len(multiples) != rank or min(multiples, default=0) < 0:
            yield f"its multiples are {multiples}; {rank} numbers from 0 on were expected"


def _sized_tile(op: SizedOperation) -> Results | None:
    x, own = op.input(0), op.open(0)
    if op.site.constant(1) is not None and not own:
        return None
    multiples = op.amounts(1)
    if len(multiples) != len(x.shape):
        raise Refused("its multiples do not fit its input")
    if any(multiples[axis].known != 1 for axis in own):
        raise Refused("it repeats a size that only a run can tell")
    sizes = [multiple.times(size) for multiple, size in zip(multiples, x.shape, strict=True)]
    shape, known = sized_shape(op, sizes)
    known |= own
    positions = [
        Position((Digit(axis, modulus=size if multiple.known != 1 else 0),))
        for axis, (size, multiple) in enumerate(zip(x.shape, multiples, strict=True))
    ]
    result = op.emit.node("gather", [x], tuple(shape), Gather(tuple(positions)))
    return op.noted(op.computed(result, known) if x.is_constant and known else result, known)


@declare("TILE", versions=3, inputs=2, integers=(1,), types=ANY, reasons=_tile_reasons, sized=_sized_tile)
def tile(site: Site, emit: Emitter) -> Tensor:
    """Repetitions of the input along its axes."""
    x, multiples = site.input(0), numbers(site, 1)
    pairs = list(zip(x.shape, multiples, strict=True))
    shape = tuple(d * m for d, m in pairs)
    positions = (Position((Digit(i, modulus=d if m > 1 else 0),)) for i, (d, m) in enumerate(pairs))
    return emit.node("gather", [x], shape, Gather(tuple(positions)))


def _broadcast_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "shape")
    if site.constant(1) is None:
        return
    wanted = tuple(numbers(site, 1))
    if min(wanted, default=0) < 0 or not broadcasts_to(site.input(0).shape, wanted):
        yield f"its input of shape {list(site.input(0).shape)} does not broadcast to {numbers(site, 1)}"


def _sized_broadcast(op: SizedOperation) -> Results | None:
    x, own = op.input(0), op.open(0)
    if op.site.constant(1) is not None and not own:
        return None
    wanted = op.amounts(1)
    if len(wanted) < len(x.shape):
        raise Refused("its input does not broadcast to its shape")
    for at, size in enumerate(x.shape):
        axis = at + len(wanted) - len(x.shape)
        if at in own and wanted[axis] != op.sizes.size(own[at]):
            raise Refused("sizes that only a run can tell have to be equal")
        if at not in own and size != 1:
            if wanted[axis].known not in (None, size):
                raise Refused("its input does not broadcast to its shape")
            wanted[axis] = Amount(size)
    shape, known = sized_shape(op, wanted)
    result = op.emit.node("map", [x], tuple(shape))
    return op.noted(op.computed(result, known) if known and not own else result, known)


@declare(
    "BROADCAST_TO", versions=4, inputs=2, integers=(1,), types=ANY, reasons=_broadcast_reasons, sized=_sized_broadcast
)
def broadcast_to(site: Site, emit: Emitter) -> Tensor:
    """Return the input broadcast to a constant shape."""
    return emit.node("map", [site.input(0)], tuple(numbers(site, 1)))


def _reverse_axes(site: Site) -> set[int | None]:
    return {normal_axis(a, len(site.input(0).shape)) for a in numbers(site, 1)}


def _reverse_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "axes")
    if site.constant(1) is not None and None in _reverse_axes(site):
        yield f"its axes {numbers(site, 1)} are not all axes of its input {list(site.input(0).shape)}"


@declare("REVERSE_V2", versions=4, inputs=2, integers=(1,), types=ANY, reasons=_reverse_reasons)
def reverse(site: Site, emit: Emitter) -> Tensor:
    """Return the input in reverse order along some axes."""
    x, reversed_axes = site.input(0), _reverse_axes(site)
    axes = (AxisMap(i, d - 1, -1) if i in reversed_axes else AxisMap(i) for i, d in enumerate(x.shape))
    return emit.node("rearrange", [x], x.shape, Rearrange(tuple(axes)))


def _sequence_axes(site: Site) -> tuple[int, int] | None:
    """Return the axes of time and of sequences; None if they are none of the input's."""
    rank = len(site.input(0).shape)
    time, batch = (normal_axis(site.options.get(name, 0), rank) for name in ("seq_dim", "batch_dim"))
    return None if time is None or batch is None or time == batch else (time, batch)


def _sequence_reasons(site: Site) -> Iterator[str]:
    axes, x, lengths = _sequence_axes(site), site.input(0).shape, site.input(1).shape
    if axes is None:
        yield f"its options name no two axes of its input {list(x)}"
    elif lengths != (x[axes[1]],):
        yield f"its lengths have shape {list(lengths)}; [{x[axes[1]]}] was expected"


@declare("REVERSE_SEQUENCE", versions=1, inputs=2, integers=(1,), types=ANY, empty=False, reasons=_sequence_reasons)
def reverse_sequence(site: Site, emit: Emitter) -> Tensor:
    """Return the first elements of each sequence in reverse order; those after its length stay where they are."""
    x, lengths, (time, batch) = site.input(0), site.input(1), judged(_sequence_axes(site))
    shape = (x.shape[batch], x.shape[time])
    steps = emit.constant(np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape).copy())
    if lengths.dtype != "int32":
        lengths = emit.node("map", [lengths], lengths.shape, None, (EpilogueOp("to_index", (Value(0),)),), "int32")
    ends = reshape_node(emit, lengths, (shape[0], 1))
    one = emit.constant(np.array(1, np.int32))
    mirrored = EpilogueOp("sub", (Input(1), Value(0))), EpilogueOp("sub", (Value(1), Input(2)))
    within = EpilogueOp("less", (Value(0), Input(1))), EpilogueOp("select", (Value(3), Value(2), Value(0)))
    source = emit.node("map", [steps, ends, one], shape, None, (*mirrored, *within), "int32")
    positions = [follow(i) for i in range(len(x.shape))]
    positions[time] = Position((Lookup(1, (AxisMap(batch), AxisMap(time)), x.shape[time] - 1),))
    return emit.node("gather", [x, source], x.shape, Gather(tuple(positions)))


def _target_shape(site: Site) -> Shape | None:
    """Return the shape of a RESHAPE's result, by its second input or options, with -1 resolved.

    None if it is impossible, or computed at run time; one size alone can only be the number of elements.
    """
    x, requested = site.input(0), site.constant(1)
    if site.optional(1) is not None and requested is None:
        return (x.size,) if site.input(1).shape == (1,) else None
    wanted = requested.reshape(-1).tolist() if requested is not None else list(site.options.get("new_shape", ()))
    known = prod(d for d in wanted if d != -1)
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted) or (-1 in wanted and (known == 0 or x.size % known)):
        return None
    shape = tuple(x.size // known if d == -1 else int(d) for d in wanted)
    image = prod(shape[1:])
    if site.resized and prod(shape) != x.size and image and x.size % image == 0:
        return (x.size // image, *shape[1:])  # the constant holds the batch of the file
    return shape


def _reshape_reasons(site: Site) -> Iterator[str]:
    shape = _target_shape(site)
    if shape is None and site.optional(1) is not None and site.constant(1) is None:
        yield from static(site, 1, "shape")
    elif shape is None or prod(shape) != site.input(0).size:
        yield f"its input of shape {list(site.input(0).shape)} cannot take the shape that it asks for"


def _sized_reshape(op: SizedOperation) -> Results | None:
    x, known = op.input(0), op.open(0)
    if not known and (op.site.optional(1) is None or op.site.constant(1) is not None):
        return None
    if op.site.optional(1) is not None:
        wanted = op.amounts(1)
    else:
        wanted = [Amount(int(size)) for size in op.site.options.get("new_shape", ())]
    places = [i for i, amount in enumerate(wanted) if amount.known is None or amount.known == REST]
    if len(places) != 1:
        raise Refused("its shape has not one size that only a run can tell")
    (place,) = places
    sizes = [amount.offset for amount in wanted]
    rest = prod(sizes[:place]) * prod(sizes[place + 1 :])
    if not known:
        if rest < 1 or x.size % rest:
            raise Refused("the number of elements of its input is no multiple of the product of its known sizes")
        return op.noted(reshape_node(op.emit, x, (*sizes[:place], x.size // rest, *sizes[place + 1 :])), {})
    first = next((i for i, size in enumerate(x.shape) if size != 1 or i in known), 0)
    if set(known) != {first} or any(size != 1 for size in sizes[:place]) or rest < 1:
        raise Refused("its elements do not lie one after another")
    row, count = prod(x.shape[first + 1 :]), op.sizes.size(known[first])
    total = count.times(row)
    if total.offset % rest or total.factor % rest:
        raise Refused("its input and its result may differ in their numbers of elements")
    amount = Amount(total.offset // rest, total.factor // rest, total.number)
    if wanted[place].known is None and wanted[place] != amount:
        raise Refused("its input and its result may differ in their numbers of elements")
    extent = x.size // rest
    size = known[first] if amount == count else op.number(amount, extent)
    return op.noted(reshape_node(op.emit, x, (*sizes[:place], extent, *sizes[place + 1 :])), {place: size})


@declare(
    "RESHAPE",
    versions=2,
    inputs=(1, 2),
    integers=(1,),
    types=ANY,
    by_parts=True,
    reasons=_reshape_reasons,
    sized=_sized_reshape,
)
def reshape(site: Site, emit: Emitter) -> Tensor:
    """Return the same elements in another shape."""
    return emit.node("reshape", [site.input(0)], judged(_target_shape(site)))


def _concat_reasons(site: Site) -> Iterator[str]:
    axis, shapes = axis_option(site), [t.shape if t else () for t in site.inputs]
    if axis is None:
        yield f"its axis {site.options.get('axis')} is not an axis of its input {list(shapes[0])}"
    elif len({(len(s), s[:axis], s[axis + 1 :]) for s in shapes}) != 1:
        yield f"its inputs {', '.join(map(str, map(list, shapes)))} differ in more than axis {axis}"
    yield from mixed_types(site)


def _sized_concatenation(op: SizedOperation) -> Results | None:
    """Return joined with what is not meant between the inputs, then without it."""
    inputs = [t for t in op.site.inputs if t is not None]
    axis = int(op.site.options.get("axis", 0)) % max(1, len(inputs[0].shape))
    opens = [op.sizes.of(t) for t in inputs]
    if not any(axis in known for known in opens):
        return None
    if any(set(known) - {axis} for known in opens):
        raise Refused("what it joins is open along another axis")
    emit = op.emit
    (joined,) = op.declared()
    op.noted(joined, {})
    masks = [
        op.sizes.is_meant(emit, known[axis], (t.shape[axis],), 0)
        if axis in known
        else emit.constant(np.ones(t.shape[axis], np.bool_))
        for t, known in zip(inputs, opens, strict=True)
    ]
    extent = joined.shape[axis]
    mask = emit.node("concatenate", masks, (extent,), Concatenate(0)) if len(masks) > 1 else masks[0]
    places, count = true_places(emit, mask)
    positions = [follow(i) for i in range(len(joined.shape))]
    positions[axis] = Position((Lookup(1, (AxisMap(axis),), extent - 1),))
    result = emit.node("gather", [joined, places], joined.shape, Gather(tuple(positions)))
    return op.noted(result, {axis: Number(count.id, 0, count, 0, extent)})


@declare("CONCATENATION", versions=7, inputs=(1, MANY), types=ANY, reasons=_concat_reasons, sized=_sized_concatenation)
def concatenation(site: Site, emit: Emitter) -> Tensor:
    """Tensors one after another along an axis."""
    axis, inputs = judged(axis_option(site)), [t for t in site.inputs if t is not None]
    shape = list(inputs[0].shape)
    shape[axis] = sum(t.shape[axis] for t in inputs)
    inputs = [t for t in inputs if t.size] or inputs[:1]
    if len(inputs) == 1:
        return emit.node(
            "map", [reshape_node(emit, inputs[0], tuple(shape))], tuple(shape), None, emit.activation(site)
        )
    return emit.node("concatenate", inputs, tuple(shape), Concatenate(axis), emit.activation(site))
