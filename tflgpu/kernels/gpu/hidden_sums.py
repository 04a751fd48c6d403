"""The hidden layer of a squeeze-and-excitation as sums that the kernel of the squeezed image writes beside the image.

The layer ahead of its bias is linear in the mean, and the mean in the pixels. So each tile multiplies the sums of its
own pixels by the layer's weights, and writes a share of the layer. The image is not read for its mean, and what reads
the image next adds up a few vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import TensorId
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import AnyTile, AnyWork, Candidate
from tflgpu.kernels.kernel import Argument, Kernel, Parameters
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import power_of_two


def hidden_sums_beside(request: Request) -> TensorId | None:
    """What the kernel of a node writes beside its result: [1, 1, tiles, hidden channels] in float.

    Its reader multiplies by the layer's weights: [hidden, 1, 1, channels], its third input.
    """
    return next(iter(request.node.side_outputs), None)


def with_room_for_sums(
    request: Request, candidates: Sequence[Candidate[AnyTile, AnyWork]]
) -> Sequence[Candidate[AnyTile, AnyWork]]:
    """The candidates that have as many tiles as there are sums; all for a kernel that writes none."""
    sums = hidden_sums_beside(request)
    if sums is None:
        return candidates
    return [c for c in candidates if c.work.tiles == request.storage[sums].plane]


@dataclass(frozen=True)
class HiddenSums:
    """Shares of a hidden layer's sums that a kernel writes besides its result, see templates/gpu/hidden_sums.cl.j2.

    channels: of the hidden layer. tiles: of the kernel. parts: into which a work-group divides what it adds up for a
    channel. sums_at: place of the sums in the workspace, in vec4s.
    """

    channels: int
    tiles: int
    parts: int
    sums_at: int


@dataclass(frozen=True, kw_only=True)
class SummingParameters(Parameters):
    """Parameters of a template that can write the shares of a hidden layer's sums as well."""

    hidden_sums: HiddenSums | None = None


def with_hidden_sums(request: Request, kernel: Kernel, entries: int, lanes: int) -> Kernel:
    """The kernel, which writes the sums as well where they are wanted.

    entries, lanes: see templates/gpu/hidden_sums.cl.j2.
    """
    written, image, target = hidden_sums_beside(request), request.output, request.target
    if written is None:
        return kernel
    (reader,) = request.graph.consumers[written]
    weights = request.graph[reader.inputs[2]].data
    assert weights is not None
    channels = LANES * request.storage[written].slices
    padded = np.zeros((channels, LANES * image.slices), np.float32)
    padded[: len(weights), : image.channels] = weights.reshape(len(weights), -1) / image.plane
    parts = min(power_of_two(target.local_size // channels), power_of_two(entries), target.cost_model.lockstep)
    # The sums have a place of their own, so that they can be written without waiting.
    sums = HiddenSums(channels, kernel.tiles, parts, sums_at=kernel.workspace)
    assert isinstance(kernel.parameters, SummingParameters)
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
