"""Rows of Fourier transforms, of what is read of complex numbers, and of what hears commands."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from flatbuffers import flexbuffers
from hypothesis import strategies as st

from tests.ops import reference
from tests.ops.case import Net, Row, Tensor
from tests.ops.strategies import BOOL, SMALL, shapes
from tests.ops.tolerance import Tolerance
from tflgpu.ops.declaration import Array

POINTS = st.sampled_from((8, 1, 2, 3, 4, 5, 7, 16, 20, 33, 64))  # the CPU's transform takes powers of two
MANY_POINTS = st.sampled_from((2048, 1030, 1500, 2187, 4096, 8192))
PARTS = {"COMPLEX_ABS": np.abs, "REAL": np.real, "IMAG": np.imag}


def transform(net: Net, code: str, points: st.SearchStrategy[int] = POINTS) -> Tensor:
    """A part of a transform of frames that are longer or shorter than it; the complex numbers may be moved before."""
    height, width = net.draw(st.sampled_from((1, 2, 4))), net.draw(points)
    leading = net.draw(st.lists(SMALL, max_size=2))
    if points is MANY_POINTS and net.draw(BOOL):
        height, width = width, height
    frames = net.input(net.normal((*leading, net.draw(SMALL), max(1, width + net.draw(st.integers(-2, 3))))))
    value: Array = np.fft.rfft2(frames.value, (height, width))
    if height & (height - 1) or width & (width - 1):
        net.litert_differs = "it transforms powers of two only"
    elif width == 1:
        net.litert_differs = "it gives a single number an imaginary part"
    size = float(np.abs(frames.value).sum((-2, -1)).max())
    x = net.op("RFFT2D", [frames, net.integers([height, width])], value, magnitude=size, dtype="complex64")
    if net.draw(BOOL):
        shape = (value.size,)
        x = net.op("RESHAPE", [x, net.integers(shape)], value.reshape(shape), dtype="complex64")
    return net.op(code, [x], PARTS[code](x.value))


def _numbers(**options: object) -> bytes:
    return bytes(flexbuffers.Dumps(options))


def _spectrogram(net: Net, squared: bool) -> Tensor:
    window, stride = net.draw(st.sampled_from((30, 2, 64, 400, 1100))), net.draw(st.sampled_from((20, 7, 160)))
    samples = window + net.draw(st.integers(0, 3)) * stride + net.draw(st.sampled_from((0, stride - 1)))
    sound = net.input(net.normal((samples, net.draw(st.sampled_from((1, 2))))))
    value = reference.spectrogram(sound.value, window, stride, squared)
    options = _numbers(window_size=window, stride=stride, magnitude_squared=squared)
    return net.op("AudioSpectrogram", [sound], value, custom_options=options, terms=window)


def spectrogram(net: Net) -> Tensor:
    """A spectrogram by windows of any length; the last samples are in no window."""
    return _spectrogram(net, net.draw(BOOL))


def coefficients(net: Net) -> Tensor:
    """Coefficients of sound, at a rate that is known or not; where it is low the channels end above the spectrum."""
    x = _spectrogram(net, squared=True)
    channels, rate = net.draw(st.sampled_from((13, 5, 40))), net.draw(st.sampled_from((16000, 8000, 44100, 4000)))
    low, high = net.draw(st.sampled_from((20.0, 0.0, 125.0))), net.draw(st.sampled_from((4000.0, 2000.0, 3999.5)))
    count = net.draw(st.integers(1, channels))
    options = _numbers(
        lower_frequency_limit=low,
        upper_frequency_limit=high,
        filterbank_channel_count=channels,
        dct_coefficient_count=count,
    )
    given = (net.constant if net.draw(BOOL) else net.input)(np.array([rate], np.int32))
    value = reference.mfcc(x.value, rate, low, high, channels, count)
    return net.op("Mfcc", [x, given], value, custom_options=options, magnitude=20 * math.sqrt(channels))


def verified(net: Net) -> Tensor:
    """The operator of a debugger: it compares integers with the floats that they stand for."""
    shape, (scale, zero) = net.draw(shapes()), (0.25, -3)
    x = net.input((scale * net.rng.integers(-100, 100, shape)).astype(np.float32))
    y = net.input(net.normal(shape))
    q = net.quantized("QUANTIZE", x, x.value, "int8", scale, zero)
    return net.op(
        "NumericVerify", [q, y], x.value - y.value, custom_options=_numbers(tolerance=5.0, log_if_failed=False)
    )


def rotated(net: Net) -> Tensor:
    """Parts of rows by a Hadamard matrix, whose signs are those of common bits of row and column."""
    size, parts, rows = net.draw(st.sampled_from((16, 1, 2, 64, 128))), net.draw(SMALL), net.draw(SMALL)
    x = net.input(net.normal((net.draw(SMALL), rows, parts * size) if net.draw(BOOL) else (rows, parts * size)))
    common = np.bitwise_count(np.arange(size)[:, None] & np.arange(size))
    value = (x.value.reshape(-1, size) @ (1 - 2.0 * (common % 2)) / np.sqrt(size)).reshape(x.value.shape)
    options = _numbers(hadamard_size=size, random_binary_vector=[1] * size)
    return net.op("aeq.hadamard_rotation", [x], value, custom_options=options, terms=size)


SUMS = Tolerance(fp32=3e-6)

ROWS = (
    Row("rfft2d", "RFFT2D", partial(transform, code="REAL"), SUMS),
    Row("rfft2d_of_many_points", "RFFT2D", partial(transform, code="IMAG", points=MANY_POINTS), SUMS),
    Row("audio_spectrogram", "AudioSpectrogram", spectrogram, SUMS),
    Row("mfcc", "Mfcc", coefficients),
    Row("numeric_verify", "NumericVerify", verified),
    Row("hadamard_rotation", "aeq.hadamard_rotation", rotated, SUMS),
    *(Row(code.lower(), code, partial(transform, code=code), SUMS) for code in PARTS),
)
