"""AudioSpectrogram and Mfcc, custom operators that LiteRT has built in: the front of models that hear commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, log1p, prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.model.operator_options import map_of_options
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.arithmetic.spectrum import MOST_POINTS, fitted, is_transformed, product, real_transform, waves
from tflgpu.ops.declaration import Emitter, Site, declare, judged
from tflgpu.ops.movement.indexing import Digit, Gather, Position, follow
from tflgpu.ops.movement.shaping import reshape_node

# Energies of channels are at least this before their logarithm, as in LiteRT.
LEAST_ENERGY = 1e-12


@dataclass(frozen=True)
class _Frames:
    """How sound is cut into frames. squared: whether the result has squares of magnitudes."""

    window: int
    stride: int
    squared: bool

    @property
    def points(self) -> int:
        """The points of the transform: the next power of two."""
        return 1 << (self.window - 1).bit_length()


def _frames(site: Site) -> _Frames | None:
    """None for options that make no sense."""
    options = map_of_options(site.options["custom_options"])
    window, stride = (options.get(name) for name in ("window_size", "stride"))
    if not isinstance(window, int) or not isinstance(stride, int) or window < 2 or stride < 1:
        return None
    return _Frames(window, stride, bool(options.get("magnitude_squared")))


def _spectrogram_reasons(site: Site) -> Iterator[str]:
    frames, shape = _frames(site), site.input(0).shape
    if frames is None:
        yield "its options are no window of two samples or more and a positive stride"
    elif len(shape) != 2 or shape[0] < frames.window:
        yield f"its input has shape {list(shape)}; [samples, channels] with a window of {frames.window} was expected"
    elif not is_transformed(frames.points):
        yield f"its transform has {frames.points} points"


@declare("AudioSpectrogram", versions=1, inputs=1, empty=False, reasons=_spectrogram_reasons)
def audio_spectrogram(site: Site, emit: Emitter) -> Tensor:
    """Magnitudes of the Fourier transforms of frames under a Hann window, or their squares."""
    sound, frames = site.input(0), judged(_frames(site))
    samples, channels = sound.shape
    count, frequencies = 1 + (samples - frames.window) // frames.stride, frames.points // 2 + 1
    emit.keep(sound)  # loud frequencies would leave the rounding errors of halves in quiet ones
    positions = Position((Digit(1, step=frames.stride), Digit(2))), follow(0)
    shape = (channels, count, frames.window)
    cut = emit.node("gather", [sound], shape, Gather(positions), precise=True)
    rows = reshape_node(emit, cut, (channels * count, frames.window))
    hann = 0.5 - 0.5 * np.cos(2 * np.pi / frames.window * np.arange(frames.window))
    if frames.points <= MOST_POINTS:
        parts = [product(emit, rows, wave * hann) for wave in waves(frames.points, frequencies, frames.window)]
    else:
        window, step = emit.constant(hann.astype(np.float32)), EpilogueOp("mul", (Value(0), Input(1)))
        rows = emit.node("map", [rows, window], rows.shape, None, (step,), precise=True)
        parts = [*real_transform(emit, fitted(emit, rows, (rows.shape[0], frames.points)), frames.points)]
    epilogue = [
        EpilogueOp("square", (Value(0),)),
        EpilogueOp("square", (Input(1),)),
        EpilogueOp("add", (Value(1), Value(2))),
    ]
    if not frames.squared:
        epilogue.append(EpilogueOp("sqrt", (Value(3),)))
    result = emit.node("map", parts, parts[0].shape, None, tuple(epilogue), precise=True)
    return reshape_node(emit, result, (channels, count, frequencies))


@dataclass(frozen=True)
class _Bands:
    """Channels that are triangles of equal width on the mel scale between two frequencies in hertz."""

    low: float
    high: float
    channels: int
    coefficients: int


def _bands(site: Site) -> _Bands | None:
    """None for options that make no sense."""
    options = map_of_options(site.options["custom_options"])
    names = "lower_frequency_limit", "upper_frequency_limit", "filterbank_channel_count", "dct_coefficient_count"
    low, high, channels, coefficients = (options.get(name, 0) for name in names)
    if any(not isinstance(n, int | float) for n in (low, high, channels, coefficients)):
        return None
    bands = _Bands(float(low), float(high), int(channels), int(coefficients))
    return bands if 0 <= bands.low < bands.high < 1e6 and 1 <= bands.coefficients <= bands.channels <= 4096 else None


def _mfcc_reasons(site: Site) -> Iterator[str]:
    shape = site.input(0).shape
    if _bands(site) is None:
        yield "its options are no two frequencies, and no channels and fewer coefficients"
    if len(shape) != 3 or shape[-1] < 2:
        yield f"its input has shape {list(shape)}; [channels, frames, frequencies] was expected"
    if site.input(1).dtype != "int32" or site.input(1).size != 1:
        yield f"its rate is {site.input(1).dtype} of shape {list(site.input(1).shape)}; one int32 was expected"


@declare("Mfcc", versions=1, inputs=2, integers=(1,), empty=False, reasons=_mfcc_reasons)
def mfcc(site: Site, emit: Emitter) -> Tensor:
    """Return the cosine transform of the logarithms of channels' magnitudes: mel-frequency cepstral coefficients."""
    x, bands = site.input(0), judged(_bands(site))
    *leading, frequencies = x.shape
    rate = reshape_node(emit, site.input(1), ())
    rows = reshape_node(emit, x, (prod(leading), frequencies))
    emit.keep(x)
    magnitudes = emit.node("map", [rows], rows.shape, None, (EpilogueOp("sqrt", (Value(0),)),), precise=True)
    least = emit.constant(np.array(LEAST_ENERGY, np.float32))
    known = site.constant(1) is not None
    energies = emit.node(
        "fully_connected" if known else "matmul",
        [magnitudes, _triangles(emit, bands, frequencies, rate), least],
        (rows.shape[0], bands.channels),
        None if known else MatMul(adjoint_left=False, adjoint_right=True),
        (EpilogueOp("maximum", (Value(0), Input(2))), EpilogueOp("log", (Value(1),))),
        precise=True,
    )
    angles = np.pi / bands.channels * np.outer(np.arange(bands.coefficients), np.arange(bands.channels) + 0.5)
    result = product(emit, energies, np.sqrt(2 / bands.channels) * np.cos(angles))
    # LiteRT gives zeros where the rate is so low that the spectrum ends before the channels.
    last, one = (emit.constant(np.array(n, np.int32)) for n in (_edge(2 * bands.high, frequencies), frequencies))
    steps = (
        EpilogueOp("mul", (Value(0), Input(1))),
        EpilogueOp("greater", (Value(1), Input(2))),
        EpilogueOp("to_float", (Value(2),)),
    )
    fits = emit.node("map", [rate, one, last], (), None, steps, "float32", precise=True)
    whole = emit.node(
        "map", [result, fits], result.shape, None, (EpilogueOp("mul", (Value(0), Input(1))),), precise=True
    )
    return reshape_node(emit, whole, (*leading, bands.coefficients))


def _edge(frequency: float, frequencies: int) -> int:
    """Return what a frequency's number in the spectrum times the rate is at most, in integers of 32 bits."""
    return min(floor(frequency * (frequencies - 1)), 2**31 - 1)


def _mel(hertz: float) -> float:
    return 1127 * log1p(hertz / 700)


def _triangles(emit: Emitter, bands: _Bands, frequencies: int, rate: Tensor) -> Tensor:
    """How much of each frequency each channel has, [channels, frequencies], for a rate that may be computed.

    Its triangles go from 0 to 1 and back; the first frequencies and those above the channels are in none.
    """
    width = (_mel(bands.high) - _mel(bands.low)) / (bands.channels + 1)
    centers = _mel(bands.low) / width + 1 + np.arange(bands.channels)
    numbers = np.arange(frequencies)
    hertz = numbers / (2 * (frequencies - 1))  # at a rate of 1
    inputs = [
        rate,
        *(emit.constant(np.asarray(c, np.float32)) for c in (hertz / 700, 1, 1127 / width, centers.reshape(-1, 1))),
        *(emit.constant(np.asarray(c, np.int32)) for c in (2 * numbers - 1, _edge(4 * bands.low, frequencies))),
        *(emit.constant(np.asarray(c, np.int32)) for c in (numbers, _edge(2 * bands.high, frequencies))),
    ]
    steps = (
        EpilogueOp("to_float", (Value(0),)),
        EpilogueOp("mul", (Value(1), Input(1))),
        EpilogueOp("add", (Value(2), Input(2))),
        EpilogueOp("log", (Value(3),)),
        EpilogueOp("mul", (Value(4), Input(3))),
        EpilogueOp("sub", (Value(5), Input(4))),
        EpilogueOp("abs", (Value(6),)),
        EpilogueOp("sub", (Input(2), Value(7))),
        EpilogueOp("relu", (Value(8),)),
        EpilogueOp("mul", (Value(0), Input(5))),
        EpilogueOp("greater", (Value(10), Input(6))),
        EpilogueOp("mul", (Value(0), Input(7))),
        EpilogueOp("less_equal", (Value(12), Input(8))),
        EpilogueOp("logical_and", (Value(11), Value(13))),
        EpilogueOp("to_float", (Value(14),)),
        EpilogueOp("mul", (Value(9), Value(15))),
    )
    return emit.node("map", inputs, (bands.channels, frequencies), None, steps, "float32", precise=True)


def _verify_reasons(site: Site) -> Iterator[str]:
    if site.input(0).shape != site.input(1).shape:
        yield f"its inputs differ in shape: {list(site.input(0).shape)} and {list(site.input(1).shape)}"


@declare("NumericVerify", versions=1, inputs=2, types=frozenset(("float32", "float16")), reasons=_verify_reasons)
def numeric_verify(site: Site, emit: Emitter) -> Tensor:
    """By how much what integers stand for differs from the second input, with which a debugger compares them."""
    x, y = site.input(0), site.input(1)
    steps = EpilogueOp("to_float", (Value(0),)), EpilogueOp("sub", (Value(1), Input(1)))
    return emit.node("map", [x, y], x.shape, None, steps, "float32")
