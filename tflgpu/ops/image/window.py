"""The window of convolutions and pooling, which slides over height and width, and average, maximum and L2 pooling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape, Size
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.declaration import Emitter, Site, declare
from tflgpu.ops.limits import BLOCK_MARGIN, GREATEST_INT

SAME, VALID = 0, 1  # the schema's Padding


def span(kernel: int, dilation: int) -> int:
    """Return the pixels from the first to the last that a window sees along one axis.

    Args:
        kernel: Taps along the axis.
        dilation: Distance of taps in pixels.
    """
    return (kernel - 1) * dilation + 1


class Padding(NamedTuple):
    """Pixels of zeros around an image."""

    top: Size
    bottom: Size
    left: Size
    right: Size


@dataclass(frozen=True)
class Window:
    """Output pixel (y, x) sees input pixels (y * stride - top + ky * dilation, x * stride - left + kx * dilation)."""

    kernel: tuple[int, int]
    stride: tuple[Size, Size]
    dilation: tuple[Size, Size]
    padding: Padding

    def output(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the result.

        Args:
            height: The image's.
            width: The image's.
        """
        sizes = (height + self.padding.top + self.padding.bottom, width + self.padding.left + self.padding.right)
        h, w = (
            (size - span(k, d)) // s + 1
            for size, k, s, d in zip(sizes, self.kernel, self.stride, self.dilation, strict=True)
        )
        return h, w

    def padded(self, extra: Padding) -> Window:
        """Return the same window with more padding.

        Args:
            extra: Is added at each border.
        """
        return replace(self, padding=Padding(*(a + b for a, b in zip(self.padding, extra, strict=True))))

    @property
    def is_pointwise(self) -> bool:
        """Whether an output pixel reads its own place only."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and not any(self.padding)


POINTWISE = Window((1, 1), (1, 1), (1, 1), Padding(0, 0, 0, 0))


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return TensorFlow's SAME: zeros before and after, so that the output has ceil(size / stride) pixels.

    Args:
        size: Pixels of the image along the axis.
        kernel: Taps along the axis.
        stride: Distance of windows in pixels.
        dilation: Distance of taps in pixels.
    """
    total = max((-(-size // stride) - 1) * stride + span(kernel, dilation) - size, 0)
    return total // 2, total - total // 2


def window_of(site: Site, kernel: tuple[int, int], image: Shape) -> Window:
    """Return the window of an operator with options of stride, dilation and padding.

    Args:
        site: The operator.
        kernel: Height and width of the window in taps.
        image: An NHWC shape.
    """
    stride, dilation = _pair(site, "stride_{}"), _pair(site, "dilation_{}_factor", default=1)
    return window_over(image, kernel, stride, dilation, same=site.options["padding"] == SAME)


def window_over(
    image: Shape, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int] = (1, 1), *, same: bool
) -> Window:
    """Return a window over an image.

    Args:
        image: An NHWC shape.
        kernel: Height and width of the window in taps.
        stride: Distance of windows in pixels, by height and width.
        dilation: Distance of taps in pixels, by height and width.
        same: Whether its padding is TensorFlow's SAME; else there is none.
    """
    padding = Padding(0, 0, 0, 0)
    if same:
        vertical, horizontal = (
            same_padding(size, k, s, d) for size, k, s, d in zip(image[1:3], kernel, stride, dilation, strict=True)
        )
        padding = Padding(*vertical, *horizontal)
    return Window(kernel, stride, dilation, padding)


def window_reasons(site: Site, kernel: tuple[int, int], image: Shape) -> Iterator[str]:
    """Yield obstacles in the options that :func:`window_of` reads.

    Args:
        site: The operator.
        kernel: Height and width of the window in taps.
        image: Should be an NHWC shape.
    """
    if len(image) != 4:
        yield f"its input has shape {list(image)}; [batch, height, width, channels] was expected"
        return
    sizes = {
        "stride": _pair(site, "stride_{}"),
        "dilation": _pair(site, "dilation_{}_factor", default=1),
        "kernel": kernel,
    }
    wrong = [f"{name} {pair}" for name, pair in sizes.items() if min(pair) < 1]
    yield from (f"its {text} must be positive" for text in wrong)
    if site.options.get("padding") not in (SAME, VALID):
        yield "its padding is neither SAME nor VALID"
    elif not wrong:
        yield from fit_reasons(window_of(site, kernel, image), image)


def fit_reasons(window: Window, image: Shape) -> Iterator[str]:
    """Yield the obstacle that the window is too large for an image, or reaches too far.

    Args:
        window: The window.
        image: An NHWC shape.
    """
    if min(window.output(image[1], image[2])) < 1:
        yield f"its window {window.kernel} is larger than the input {list(image[1:3])}"
    yield from reach_reasons(window, image)


def reach_reasons(window: Window, image: Shape) -> Iterator[str]:
    """Yield the obstacle that the window reaches further over an image than kernels can count.

    Args:
        window: The window.
        image: An NHWC shape.
    """
    sides = (sum(window.padding[:2]), sum(window.padding[2:]))
    for i, out in enumerate(window.output(image[1], image[2])):
        covered = span(window.kernel[i], window.dilation[i])
        reach = (out + BLOCK_MARGIN) * window.stride[i] + covered + sides[i]
        if reach > GREATEST_INT:
            yield (
                f"its window of {window.kernel[i]} pixels, stride {window.stride[i]} and dilation {window.dilation[i]} "
                f"reaches over {reach} pixels; kernels count to {GREATEST_INT}"
            )
            return


def _pair(site: Site, pattern: str, default: int = 0) -> tuple[int, int]:
    return site.options.get(pattern.format("h"), default), site.options.get(pattern.format("w"), default)


# l2 is the square root of the average of squares.
Function = Literal["average", "maximum", "l2"]


@dataclass(frozen=True)
class Pool:
    """The maximum or the mean of the windows of an image."""

    function: Function
    window: Window


def _kernel(site: Site) -> tuple[int, int]:
    return site.options.get("filter_height", 0), site.options.get("filter_width", 0)


def _reasons(site: Site) -> Iterator[str]:
    yield from window_reasons(site, _kernel(site), site.input(0).shape)


FUNCTIONS: dict[str, Function] = {"AVERAGE_POOL_2D": "average", "MAX_POOL_2D": "maximum", "L2_POOL_2D": "l2"}


@declare("AVERAGE_POOL_2D", versions=3, inputs=1, reasons=_reasons)
@declare("MAX_POOL_2D", versions=3, inputs=1, reasons=_reasons)
@declare("L2_POOL_2D", versions=1, inputs=1, reasons=_reasons)
def pool(site: Site, emit: Emitter) -> Tensor:
    """Return the maximum or the mean of each window."""
    image, function = site.input(0), FUNCTIONS[site.code]
    window = window_of(site, _kernel(site), image.shape)
    shape = (image.shape[0], *window.output(*image.shape[1:3]), image.shape[3])
    if function == "average" and window.kernel == image.shape[1:3] and not any(window.padding):
        return emit.node("reduce", [image], shape, Reduce("mean", (1, 2)), emit.activation(site))
    return emit.node("pool", [image], shape, Pool(function, window), emit.activation(site))
