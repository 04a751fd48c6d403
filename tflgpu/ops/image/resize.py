"""RESIZE_BILINEAR, and Resampler: an image, sampled at the places that another tensor holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tflgpu.graph.ir import Tensor
from tflgpu.ops.declaration import Emitter, Site, declare, numbers, static
from tflgpu.ops.limits import storage_reasons


@dataclass(frozen=True)
class Resize:
    """Output pixel i samples input position ``i * scale + offset``, clamped to the image.

    scale, offset: for height and width.
    """

    scale: tuple[float, float]
    offset: tuple[float, float]


def size_reasons(site: Site) -> Iterator[str]:
    """Obstacles of a size that is not known, or of an image that is none."""
    yield from static(site, 1, "size")
    size, shape = site.constant(1), site.input(0).shape
    if len(shape) != 4:
        yield f"its input has shape {list(shape)}; [batch, height, width, channels] was expected"
    if size is not None and (size.shape != (2,) or size.min() < 1):
        yield f"its size {size.tolist()} is not a height and a width"
    elif size is not None and len(shape) == 4:  # before a table of its rows is made
        yield from storage_reasons("result", (shape[0], int(size[0]), int(size[1]), shape[3]))


@declare("RESIZE_BILINEAR", versions=4, inputs=2, integers=(1,), reasons=size_reasons)
def resize_bilinear(site: Site, emit: Emitter) -> Tensor:
    """Bilinear resizing to a constant size."""
    image, target = site.input(0), numbers(site, 1)
    corners, centers = site.options.get("align_corners"), site.options.get("half_pixel_centers")
    # Corners are aligned only along an axis that has two of them.
    ratios = tuple(
        (old - 1) / (new - 1) if corners and new > 1 else old / new
        for old, new in zip(image.shape[1:3], target, strict=True)
    )
    offsets = tuple(0.5 * r - 0.5 if centers else 0.0 for r in ratios)
    shape = (image.shape[0], *target, image.shape[3])
    if shape == image.shape:
        return image
    return emit.node("resize_bilinear", [image], shape, Resize((ratios[0], ratios[1]), (offsets[0], offsets[1])))


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
