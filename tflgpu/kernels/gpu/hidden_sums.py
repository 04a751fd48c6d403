"""The hidden layer of a squeeze-and-excitation as sums that the kernel of the squeezed image writes beside the image.

The layer ahead of its bias is linear in the mean, and the mean in the pixels. So each tile multiplies the sums of its
own pixels by the layer's weights, and writes a share of the layer. The image is not read for its mean, and what reads
the image next adds up a few vectors.

Where the mean is rounded it is not linear. Then a tile that has all pixels of its channels rounds their means before it
multiplies. Tiles of parts of the image write the sums of their pixels instead, and the reader has the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Node, TensorId
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import AnyTile, Candidate, Work
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Parameters
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import power_of_two


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
