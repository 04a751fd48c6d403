"""Squeeze-and-excitation after its mean, as one kernel for GPUs, and its hidden layer as sums of another kernel.

Hu, Shen and Sun, "Squeeze-and-Excitation Networks" (2018), arXiv:1709.01507.

The hidden layer ahead of its bias is linear in the mean, and the mean in the pixels. So each tile multiplies the sums
of its own pixels by the layer's weights, and writes a share of the layer. The image is not read for its mean, and what
reads the image next adds up a few vectors.

Where the mean is rounded it is not linear. Then a tile that has all pixels of its channels rounds their means before it
multiplies. Tiles of parts of the image write the sums of their pixels instead, and the reader has the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Node, TensorId
from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.candidates import AnyTile, Candidate, Work
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.packing import pack_dense, padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local, power_of_two, tile_count
from tflgpu.target import ITEM_BYTES, ElementType, Target

RESIDENT_GROUPS = 8  # work-groups of a compute unit that launches keep busy


@dataclass(frozen=True)
class Excite:
    """``image * gate(hidden(vector))`` of two fully connected layers with epilogues of their own.

    Inputs: image NHWC, vector [batch, 1, 1, in], weights [hidden, 1, 1, in] and bias of the hidden layer, weights
    [channels, 1, 1, hidden] and bias of the gates; weights and biases are constants. Made by
    :mod:`tflgpu.kernels.gpu.rewrites`.

    hidden_epilogue, gate_epilogue: ops that read no inputs.
    """

    hidden_epilogue: tuple[EpilogueOp, ...]
    gate_epilogue: tuple[EpilogueOp, ...]


@dataclass(frozen=True)
class ExciteWork:
    """How work-groups divide the work: ``slices`` of an image at once, in ``chunks`` of ``per_tile`` pixels.

    gate_sharers: work-items that share a vec4 of the gates. weight_bytes: of both layers, which each work-group reads.
    """

    gate_sharers: int
    slices: int
    chunks: int
    per_tile: int
    tiles: int
    weight_bytes: int

    def demand(self, target: Target) -> Demand:
        """Two batches of loads, one for each layer, and the weights."""
        model = target.cost_model
        waiting, loading = Phase(2, (model.batch_latency,)), Phase(1, (self.weight_bytes / model.shared_weight_bytes,))
        return Demand(self.tiles, (waiting, loading), model.tile_latency)


def groups_at_once(target: Target) -> int:
    """How many work-groups a device works on at once."""
    return target.compute_units * (RESIDENT_GROUPS if target.executor == "launch" else 1)


def excite_work(image: Storage, vector: Storage, hidden: int, target: Target) -> ExciteWork:
    """Count as many tiles as compute units work on at once, if a pixel is left for each work-item. hidden: channels.

    Slices share the hidden layer where there would be more tiles.
    """
    hidden_slices = tile_count(hidden, LANES)
    gate_sharers = 1 << (hidden_slices * LANES - 1).bit_length()  # a power of two
    wanted = groups_at_once(target)
    slices, most = 1, max(1, target.local_size // gate_sharers)
    while slices < most and image.batch * tile_count(image.slices, slices) > wanted:
        slices *= 2
    parts = image.batch * tile_count(image.slices, slices)
    chunks = max(1, min(tile_count(image.plane * slices, target.local_size), wanted // parts))
    weights = hidden_slices * (vector.slices + slices) * LANES * LANES
    per_tile = tile_count(image.plane, chunks)
    return ExciteWork(gate_sharers, slices, chunks, per_tile, parts * chunks, weights * ITEM_BYTES[target.storage])


def hidden_sharers(hidden: int, target: Target) -> int:
    """How many work-items share a vec4 of the hidden layer: a power of two."""
    return power_of_two(target.local_size // tile_count(hidden, LANES))


def fits_work_group(hidden: int, target: Target) -> bool:
    """Whether a work-group has a work-item for each channel of the hidden layer, and local memory for all of them."""
    slices = tile_count(hidden, LANES)
    return slices * LANES <= target.local_size and fits_local(target, _workspace(slices, target))


def _workspace(hidden_slices: int, target: Target) -> int:
    """float4 elements of local memory: a sum of each work-item, and the hidden layer."""
    return target.local_size + hidden_slices


@dataclass(frozen=True, kw_only=True)
class ExciteParameters(Parameters, template="gpu/excite", stores_once=True):
    """Parameters of ``templates/gpu/excite.cl.j2``."""

    src: Storage
    squeezed: Storage
    weights_type: ElementType
    factor_type: ElementType
    hidden_epilogue: Sequence[Mapping[str, object]]
    gate_epilogue: Sequence[Mapping[str, object]]
    hidden_slices: int
    hidden_channels: int
    sharers: int
    gate_sharers: int
    slices_at_once: int
    chunks: int
    per_tile: Size


@GPU.lowering("excite")
def excite(request: Request) -> Kernel:
    """Return a squeeze-and-excitation: two layers, and the product of their gates with the image."""
    attributes, src, squeezed, dst = request.attributes(Excite), request.input(0), request.input(1), request.output
    target = request.target
    hidden_weights, gate_weights = request.constant(2), request.constant(4)
    hidden_slices = tile_count(len(hidden_weights), LANES)
    work = excite_work(dst, squeezed, len(hidden_weights), target)
    return Kernel(
        ExciteParameters(
            src=src,
            squeezed=squeezed,
            weights_type=target.storage,
            factor_type=request.factor_type(squeezed.type, target.storage),
            hidden_epilogue=inner_epilogue(attributes.hidden_epilogue),
            gate_epilogue=inner_epilogue(attributes.gate_epilogue),
            hidden_slices=hidden_slices,
            hidden_channels=len(hidden_weights),
            sharers=hidden_sharers(len(hidden_weights), target),
            gate_sharers=work.gate_sharers,
            slices_at_once=work.slices,
            chunks=work.chunks,
            per_tile=work.per_tile,
        ),
        (
            request.activation("src", 0),
            request.activation("squeezed", 1),
            request.weights("hidden_weights", pack_dense(hidden_weights, LANES, squeezed.slices * LANES)),
            Argument("hidden_bias", "float", None, padded_bias(request.constant(3), hidden_slices * LANES)),
            request.weights("gate_weights", pack_dense(gate_weights, LANES, hidden_slices * LANES)),
            Argument("gate_bias", "float", None, padded_bias(request.constant(5), dst.slices * LANES)),
        ),
        tiles=work.tiles,
        local_size=target.local_size,
        workspace=_workspace(hidden_slices, target),
        macs=dst.batch * hidden_weights.size + dst.batch * gate_weights.size,
    )


@dataclass(frozen=True, kw_only=True)
class ReadsSums:
    """Attributes of a node that reads the sums which the kernel of its image writes.

    mean_epilogue: ops on the mean, which read no inputs. sums_channels: whether the sums are those of the image's
    channels, and the reader computes means and hidden layer; else they are those of the hidden layer.
    """

    mean_epilogue: tuple[EpilogueOp, ...] = ()
    sums_channels: bool = False


class SummingWork(Work, Protocol):
    """The work of a kernel that can write sums beside its image."""

    @property
    def parts(self) -> int:
        """Parts of the image, for each of which it can write sums of channels: those of one warp each."""

    @property
    def has_whole_image(self) -> bool:
        """Whether a tile has all pixels of its channels."""


AnySummingWork = TypeVar("AnySummingWork", bound=SummingWork)


def hidden_sums_beside(request: Request) -> TensorId | None:
    """Return what the kernel of a node writes beside its result: [1, 1, tiles, hidden channels] in float.

    Its reader has the layer's weights: [hidden, 1, 1, channels], its third input. If it sums up channels it is
    [1, 1, parts of the image, channels].
    """
    return next(iter(request.node.side_outputs), None)


def _reader_of_sums(request: Request, sums: TensorId) -> tuple[Node, ReadsSums]:
    """Return the node that reads the sums, and its attributes."""
    (reader,) = request.graph.consumers[sums]
    assert isinstance(reader.attributes, ReadsSums)
    return reader, reader.attributes


def with_room_for_sums(
    request: Request, candidates: Sequence[Candidate[AnyTile, AnySummingWork]]
) -> Sequence[Candidate[AnyTile, AnySummingWork]]:
    """Return the candidates whose number of tiles, or of parts of the image, is that of the sums; all if there are no
    sums.

    A mean that is rounded needs tiles with all pixels of the image, unless the reader computes it.
    """
    sums = hidden_sums_beside(request)
    if sums is None:
        return candidates
    (_, reads), wanted = _reader_of_sums(request, sums), request.storage[sums].plane
    if reads.sums_channels:
        return [c for c in candidates if c.work.parts == wanted]
    return [c for c in candidates if c.work.tiles == wanted and (c.work.has_whole_image or not reads.mean_epilogue)]


@dataclass(frozen=True)
class HiddenSums:
    """Shares of a hidden layer's sums that a kernel writes besides its result, see templates/gpu/hidden_sums.cl.j2.

    channels: of the hidden layer. tiles: of the kernel. parts: into which a work-group divides what it adds up for a
    channel. slices: of the weights. sums_at: place of the sums in the workspace, in vec4s. mean_epilogue: ops on the
    mean, which is the sum times ``factor``; without any the weights have that factor.
    """

    channels: int
    tiles: int
    parts: int
    slices: int
    sums_at: int
    mean_epilogue: Sequence[Mapping[str, object]]
    factor: float


@dataclass(frozen=True, kw_only=True)
class SummingParameters(Parameters):
    """Parameters of a template that can write the shares of a hidden layer's sums as well.

    channel_parts: of the image, for each of which it writes the sums of the channels instead; 0 if it does not.
    """

    hidden_sums: HiddenSums | None = None
    channel_parts: int = 0


def with_hidden_sums(request: Request, kernel: Kernel, entries: int, lanes: int, slices: int) -> Kernel:
    """Return the kernel, which writes the sums as well where they are wanted.

    entries, lanes: see templates/gpu/hidden_sums.cl.j2. slices: of all tiles; the weights of those past the last one
    of the image are zero.
    """
    written, image, target = hidden_sums_beside(request), request.output, request.target
    if written is None:
        return kernel
    assert isinstance(kernel.parameters, SummingParameters)
    reader, reads = _reader_of_sums(request, written)
    if reads.sums_channels:
        return replace(
            kernel,
            parameters=replace(kernel.parameters, channel_parts=request.storage[written].plane),
            arguments=(*kernel.arguments, Argument("channel_sums", "float", written, None, written=True)),
        )
    weights = request.graph[reader.inputs[2]].data
    assert weights is not None
    channels = LANES * request.storage[written].slices
    padded = np.zeros((channels, LANES * slices), np.float32)
    pixels = 1 if reads.mean_epilogue else image.plane
    padded[: len(weights), : image.channels] = weights.reshape(len(weights), -1) / pixels
    parts = min(power_of_two(target.local_size // channels), power_of_two(entries), target.cost_model.lockstep)
    # The sums have a place of their own, so that they can be written without waiting.
    sums = HiddenSums(
        channels=channels,
        tiles=kernel.tiles,
        parts=parts,
        slices=slices,
        sums_at=kernel.workspace,
        mean_epilogue=inner_epilogue(reads.mean_epilogue),
        factor=1 / image.plane,
    )
    return replace(
        kernel,
        parameters=replace(kernel.parameters, hidden_sums=sums),
        arguments=(
            *kernel.arguments,
            Argument("hidden_weights", "float", None, padded),
            Argument("hidden_sums_of_tiles", "float", written, None, written=True),
        ),
        workspace=kernel.workspace + target.local_size // lanes,
    )
