"""The kernel of the ``gather`` node, and those of transposes, slices and padding, which are such gathers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.access import Coordinate, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.packing import integers_of, packed_block
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import Rearrange

# Elements of a table from which on it is not made floats, and below which places in it are 32-bit integers.
LEAST_PACKED, MOST_PACKED = 1 << 12, 1 << 31


@dataclass(frozen=True)
class Stride:
    """One axis of a tensor that is read: the index along it, ``coordinate`` of the output scaled, and its vec4s."""

    follows: Coordinate
    start: int
    step: int
    stride: int


@dataclass(frozen=True)
class Term:
    """A :class:`Digit` of ``follows`` or a :class:`Lookup` in ``table``, as the template wants it."""

    follows: Coordinate | None = None
    digit: Digit | None = None
    lookup: Lookup | None = None
    table: str = ""
    type: str = ""
    strides: tuple[Stride, ...] = ()
    plane: int = 0


@dataclass(frozen=True)
class SourceAxis:
    """An axis of the source: the index along it is ``start`` plus the terms, below ``size``. stride: in vec4s."""

    start: int
    terms: tuple[Term, ...]
    size: int
    stride: int


@dataclass(frozen=True)
class PackedRows:
    """A table of rows that are integers, packed as the weights of a fully connected layer.

    block: rows of a block. depth: places of a row. together: integers in a byte. scale_block: neighbouring places with
    the same scale. rows: for which there are scales.
    """

    block: int
    depth: int
    together: int
    scale_block: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class GatherParameters(ItemParameters, template="movement/gather", stores_once=True):
    """Parameters of ``templates/movement/gather.cl.j2``."""

    axes: Sequence[SourceAxis]
    fill: float
    background: Argument | None
    bounded: bool
    whole_vec4s: bool
    source: Argument
    packed: PackedRows | None = None
    plane: Size
    dirty: bool = True

    @property
    def read_where_stored(self) -> frozenset[str]:
        """The background."""
        return frozenset({self.background.name} if self.background else ())


@PORTABLE.lowering("gather", reads_grids=True)
def gather_kernel(request: Request) -> Kernel:
    """Return a gather whose work-items each compute a vec4 of the output."""
    attributes, node = request.attributes(Gather), request.node
    packed = _packed_rows(request) if _moves_vec4s(request, attributes) else None
    arguments = [
        request.operand(f"input{i}", i)
        for i in range(len(node.inputs) - len(node.epilogue_inputs))
        if i > 0 or packed is None
    ]
    if packed is None:
        parameters = gather_parameters(request, attributes, arguments)
        return item_kernel(request, parameters, arguments, 60, value_type=arguments[0].vector)
    rows, integers, scales = packed
    arguments.insert(0, integers)
    parameters = gather_parameters(request, attributes, arguments, rows)
    return item_kernel(request, parameters, (*arguments, scales), 60)


def gather_parameters(
    request: Request, attributes: Gather, arguments: Sequence[Argument], packed: PackedRows | None = None
) -> GatherParameters:
    """Return the template's parameters for a node that is a gather, with these ``attributes``, of ``arguments``."""
    source, places, still = request.shape(0), coordinates(request.output.geometry.shape), Coordinate("0")

    def term(t: Digit | Lookup) -> Term:
        if isinstance(t, Digit):
            return Term(places[t.axis], t)
        table, argument = request.shape(t.input), arguments[t.input]
        strides = tuple(
            Stride(still if m.axis is None else places[m.axis], m.start, m.step, stride)
            for m, stride in zip(t.places, (*table.axis_strides, 0), strict=False)
        )
        return Term(None, None, t, argument.name, argument.type, strides, table.plane)

    axes = [
        SourceAxis(p.start, tuple(map(term, p.terms)), size, stride)
        for p, size, stride in zip(attributes.positions, source.shape, (*source.axis_strides, 0), strict=True)
    ]
    background = None if attributes.background is None else arguments[attributes.background]
    return GatherParameters(
        axes=axes,
        fill=attributes.fill or 0,
        background=background,
        bounded=attributes.fill is not None or background is not None,
        whole_vec4s=_moves_vec4s(request, attributes),
        source=arguments[0],
        packed=packed,
        plane=source.plane,
    )


def _packed_rows(request: Request) -> tuple[PackedRows, Argument, Argument] | None:
    """Return the source with its integers and scales, if it is a large table of weights, of which rows are read whole.

    They lie as a fully connected layer of one row reads them: a model whose last layer has the weights of the table has
    them in memory once.
    """
    table, attributes = request.graph[request.node.inputs[0]], request.attributes(Gather)
    is_bounded = attributes.fill is not None or attributes.background is not None
    if len(table.shape) != 2 or table.scale is None or not LEAST_PACKED <= table.size < MOST_PACKED or is_bounded:
        return None
    rows, channels = table.shape
    stored = integers_of(table, rows)
    if stored is None:
        return None
    block, depth = packed_block(request.target), tile_count(channels, LANES) * LANES
    scales = stored.scales_argument(tile_count(rows, block) * block)
    places = PackedRows(block, depth, stored.together, stored.scale_block(depth), tile_count(rows, block) * block)
    return places, stored.weights("input0", block, depth), scales


def _moves_vec4s(request: Request, attributes: Gather) -> bool:
    """Whether the four channels of a vec4 of the output are always four channels of one source vec4, in order."""
    source, output = request.shape(0).shape, request.output.geometry.shape
    channel, last = len(output) - 1, attributes.positions[-1]
    own = next((t for t in last.terms if isinstance(t, Digit) and t.axis == channel and t.divisor == 1), None)
    if own is None or own.step != 1 or own.shift % LANES or own.modulus % LANES or last.start % LANES:
        return False
    # A vec4 at the end of the source mixes channels with lanes that are none.
    cut = attributes.background is not None or bool(attributes.fill)
    if cut and (last != follow(channel) or source[-1] != output[-1]):
        return False
    others = [t for p in attributes.positions for t in p.terms if t is not own]
    offsets = [t for t in last.terms if t is not own]
    in_step = all(isinstance(t, Digit) and t.step % LANES == 0 for t in offsets)
    return in_step and all(_still(t, channel) for t in others)


def _still(term: Digit | Lookup, channel: int) -> bool:
    """Whether a term is the same for all channels of a vec4."""
    if isinstance(term, Digit):
        return term.axis != channel or (term.divisor % LANES == 0 and term.shift % LANES == 0)
    return all(m.axis != channel for m in term.places)


def copy_kernel(request: Request, parameters: ItemParameters) -> Kernel:
    """Return a kernel of one input, ``src``, whose items are vec4s of the output."""
    return item_kernel(request, parameters, [request.activation("src", 0)], 30, value_type=request.input(0).vector)


@PORTABLE.lowering("rearrange", reads_grids=True)
def rearrange_kernel(request: Request) -> Kernel:
    """Return a transpose, slice or padding whose work-items each move a vec4 of the output."""
    attributes = request.attributes(Rearrange)
    positions = (Position(() if m.axis is None else (Digit(m.axis, m.step),), m.start) for m in attributes.axes)
    gather = Gather(tuple(positions), attributes.fill)
    return copy_kernel(request, gather_parameters(request, gather, [request.activation("src", 0)]))
