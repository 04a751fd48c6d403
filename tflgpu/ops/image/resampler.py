"""Resampler: an image, sampled at the places that another tensor holds (tfa.image.resampler in TensorFlow Addons)."""

from __future__ import annotations

from collections.abc import Iterator

from tflgpu.graph.ir import Tensor
from tflgpu.ops.declaration import Emitter, Site, declare


def _reasons(site: Site) -> Iterator[str]:
    image, warp = site.input(0).shape, site.input(1).shape
    if len(image) != 4:
        yield f"its image has shape {list(image)}; [batch, height, width, channels] was expected"
    elif len(warp) < 2 or warp[0] != image[0] or warp[-1] != 2:
        yield f"its places have shape {list(warp)}; [{image[0]}, ..., 2] was expected"


@declare("Resampler", versions=1, inputs=2, empty=False, reasons=_reasons)
def resampler(site: Site, emit: Emitter) -> Tensor:
    """Bilinear samples of an image at computed places."""
    image, warp = site.input(0), site.input(1)
    return emit.node("resampler", [image, warp], (*warp.shape[:-1], image.shape[3]))
