"""Pairs of convolutions that a CPU computes in bands."""

from __future__ import annotations

from tests.ops.windows import Window
from tflgpu.kernels.cpu.band_kernels import Band
from tflgpu.kernels.cpu.convolution_kernels import CONVOLUTION

ONE, SAME = Window((1, 1)), Window((3, 3), padding="SAME")

HALF = Window((3, 3), (2, 2), padding="SAME")


# Shape of the image; channels and window of the convolution; window of the depthwise one; vectors, rows of a band.
CASES = {
    "rows that bands share": ((1, 14, 15, 24), 36, ONE, SAME, Band(1, 4)),
    "an even image, stride 2": ((2, 12, 18, 8), 20, ONE, HALF, Band(2, 3)),
    "an odd image, stride 2": ((1, 13, 11, 6), 7, ONE, HALF, Band(1, 2)),
    "no padding": ((1, 9, 21, 5), 33, ONE, Window((3, 5), (2, 1)), Band(2, 2)),
    "dilation": ((1, 17, 13, 12), 16, ONE, Window((3, 3), dilation=(4, 2), padding="SAME"), Band(1, 9)),
    "a stride that skips rows": ((1, 16, 16, 4), 12, ONE, Window((2, 1), (5, 3)), Band(1, 2)),
    "a window as large as the image": ((1, 5, 5, 64), 40, ONE, Window((5, 5)), Band(2, 1)),
    "the caller's image": ((1, 19, 22, 3), 24, HALF, SAME, Band(2, 3)),
    "a convolution of neighbours": (
        (1, 8, 9, 10),
        18,
        Window((3, 2), dilation=(2, 1), padding="SAME"),
        SAME,
        Band(1, 8),
    ),
    "one pixel": ((3, 1, 1, 20), 17, ONE, SAME, Band(1, 1)),
    "weights that are fetched ahead": ((1, 6, 14, CONVOLUTION.far_weights), 70, ONE, SAME, Band(2, 3)),
    "bands of the last block only": ((2, 13, 10, 8), 44, ONE, SAME, Band(1, 7, whole=2)),
}
