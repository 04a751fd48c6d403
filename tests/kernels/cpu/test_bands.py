"""A convolution and the depthwise one behind it as one kernel of CPUs: right results, and only where it is faster."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from tests.kernels.cpu.pairs_in_bands import CASES, HALF, ONE, SAME
from tests.kernels.networks import convolution, depthwise
from tests.ops.case import Net, Tensor
from tests.ops.windows import Window
from tests.support.planning import kinds, plan_of, taking
from tests.support.running import options_of, run_chosen
from tests.support.targets import CPU
from tflgpu.codegen.render import render
from tflgpu.graph.layout import Geometry
from tflgpu.kernels.candidates import TileConfig
from tflgpu.kernels.cpu import band_kernels, rewrites
from tflgpu.kernels.cpu.band_kernels import Band
from tflgpu.kernels.cpu.costs import BandWork, PairWork, depthwise_rate
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.kernel import Storage
from tflgpu.ops.image.window import POINTWISE, Padding
from tflgpu.ops.image.window import Window as PlannedWindow
from tflgpu.runtime.opencl.devices import choose
from tflgpu.target import Limits, Target

# Shape of the image; window of the depthwise convolution; channels of the pointwise one; vectors, rows of a band.
DEPTHWISE_FIRST = {
    "a last band of fewer rows": ((2, 11, 13, 10), SAME, 20, Band(1, 3)),
    "stride 2": ((1, 16, 10, 33), HALF, 70, Band(2, 8)),
    "few pixels": ((1, 5, 3, 8), Window((5, 5), padding="SAME"), 16, Band(1, 2)),
    "no padding, dilation": ((1, 12, 17, 4), Window((3, 2), (1, 2), (2, 3)), 5, Band(1, 4)),
}
IN_HALF = ("rows that bands share", "an odd image, stride 2", "a convolution of neighbours", "the caller's image")
MADE_FLOATS = ("rows that bands share", "an odd image, stride 2")  # row by row, in half
SOME = ("rows that bands share", "a stride that skips rows")


@pytest.fixture(autouse=True)
def always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "cycles", lambda *_: np.inf)


def image(net: Net, *shape: int) -> Tensor:
    """Computed, so that kernels read it in PHWC4; linear if it has few channels."""
    x = net.input(net.normal(shape))
    return x if shape[-1] < 4 else net.op("ABS", [x], np.abs(x.value))


def source_of_bands(net: Net, device_name: str, precision: str = "fp32", **bands: TileConfig) -> str:
    """Run a network with these bands on two cores, and compare its outputs with those that it must give."""
    options = options_of(device=device_name, executor="launch", precision=precision)
    return render(run_chosen(net.case(), choose(device_name), options, taking(**bands), compute_units=2)).text


@pytest.mark.quick(when=lambda name, precision: name in SOME and precision == "fp32")
@pytest.mark.parametrize(("name", "precision"), [(n, "fp32") for n in CASES] + [(n, "fp16") for n in IN_HALF])
def test_bands_are_right(name: str, precision: Literal["fp32", "fp16"], device_name: str) -> None:
    """Both have activations, and a residual that is added behind them."""
    shape, channels, first, second, band = CASES[name]
    net = Net(seed=len(name))
    x = image(net, *shape)
    y = depthwise(net, convolution(net, x, channels, first, "RELU6"), second, "RELU")
    other = net.input(net.normal(y.shape))
    net.output(net.op("ADD", [y, other], y.value + other.value, activation="RELU"))
    source = source_of_bands(net, device_name, precision, convolution_depthwise=band.config)
    assert "cpu_band_convolution_depthwise" in source
    assert ("*wide" in source) == (precision == "fp16" and name in MADE_FLOATS)


@pytest.mark.quick(when=lambda name, precision: name == "stride 2" and precision == "fp32")
@pytest.mark.parametrize(
    ("name", "precision"), [*((n, "fp32") for n in DEPTHWISE_FIRST), ("a last band of fewer rows", "fp16")]
)
def test_bands_with_the_depthwise_one_first_are_right(
    name: str, precision: Literal["fp32", "fp16"], device_name: str
) -> None:
    shape, window, channels, band = DEPTHWISE_FIRST[name]
    net = Net(seed=len(name))
    y = convolution(net, depthwise(net, image(net, *shape), window, "RELU6"), channels, ONE, "NONE")
    other = net.input(net.normal(y.shape))
    net.output(net.op("ADD", [y, other], y.value + other.value, activation="RELU"))
    source = source_of_bands(net, device_name, precision, depthwise_pointwise=band.config)
    assert "cpu_band_depthwise_pointwise" in source


def test_layers_of_several_sizes_share_a_function(device_name: str) -> None:
    """Whatever the width of the image and the size of the window."""
    net = Net(seed=1)
    x = image(net, 1, 16, 32, 8)
    for window in (HALF, Window((5, 5), padding="SAME"), SAME):
        x = depthwise(net, convolution(net, x, 32, ONE, "RELU6"), window, "RELU")
    net.output(convolution(net, x, 8, ONE, "NONE"))  # which is not of the bands, and stores in the host's order
    source = source_of_bands(net, device_name, convolution_depthwise=Band(2, 4).config)
    assert source.count("int row_at[") == 1


def kinds_of(net: Net, *outputs: Tensor, target: Target = CPU) -> list[str]:
    for output in outputs:
        net.output(output)
    return kinds(plan_of(net.case().model, target))


def pair(net: Net, activation: str = "RELU6") -> tuple[Tensor, Tensor]:
    """A convolution, and the depthwise one behind it."""
    expanded = convolution(net, image(net, 1, 12, 12, 8), 24, ONE, activation)
    return expanded, depthwise(net, expanded, SAME, "NONE")


@pytest.fixture
def net() -> Net:
    return Net(seed=0)


def test_a_pair_is_one_kernel(net: Net) -> None:
    assert kinds_of(net, pair(net)[1]) == ["map", "convolution_depthwise"]


def test_a_depthwise_convolution_joins_what_is_before_it_first(net: Net) -> None:
    """The convolution before it is the larger one."""
    y = convolution(net, pair(net)[1], 8, ONE, "NONE")
    assert kinds_of(net, y) == ["map", "convolution_depthwise", "convolution"]


def test_what_is_read_again_is_stored(net: Net) -> None:
    assert "convolution_depthwise" not in kinds_of(net, *pair(net))


def test_an_activation_with_a_number_for_each_channel_is_stored(net: Net) -> None:
    expanded = convolution(net, image(net, 1, 12, 12, 8), 24, ONE, "NONE")
    slopes = net.constant(net.normal((1, 1, 24)))
    expanded = net.op("PRELU", [expanded, slopes], np.where(expanded.value < 0, slopes.value, 1) * expanded.value)
    assert "convolution_depthwise" not in kinds_of(net, depthwise(net, expanded, SAME, "NONE"))


@pytest.mark.parametrize(
    "target",
    [
        replace(CPU, limits=Limits(local_bytes=2000)),
        replace(CPU, limits=Limits(loop_turns=100)),
        replace(CPU, storage="half", arithmetic="half"),
        replace(CPU, family="gpu"),
    ],
    ids=["no room", "no time", "sums of halves", "a GPU"],
)
def test_some_devices_store_what_is_between(target: Target, net: Net) -> None:
    assert "convolution_depthwise" not in kinds_of(net, pair(net)[1], target=target)


def test_only_the_blocks_that_cores_cannot_share_evenly_become_bands() -> None:
    """Two cores share 3 blocks: they take one each, and bands of the third."""
    dst = Geometry((1, 12, 12, 48))
    assert list(band_kernels.shared_out(Band(1, 6), dst, CPU)) == [Band(1, 6), Band(1, 6, whole=2)]
    assert list(band_kernels.shared_out(Band(1, 12), dst, CPU)) == [Band(1, 12)]
    assert list(band_kernels.shared_out(Band(1, 6), Geometry((1, 12, 12, 64)), CPU)) == [Band(1, 6)]
    assert list(band_kernels.shared_out(Band(2, 6), Geometry((1, 12, 12, 32)), CPU)) == [Band(2, 6)]


def test_a_larger_cache_makes_two_kernels_cheaper() -> None:
    """Until it holds each core's part of what is between them."""
    between = Storage(Geometry((1, 64, 64, 64)), "float")
    work = PairWork(BandWork(4, 1, 1, 1, depthwise_rate=1, workspace=0), between, depthwise_rate=1)
    sizes = (0, between.bytes // 2 - 1, between.bytes // 2, between.bytes)
    times = [cycles(work, replace(CPU, limits=Limits(cache_bytes=size))) for size in sizes]
    assert times[0] == times[1] > times[2] == times[3]


def test_cores_read_rows_that_they_have_written() -> None:
    """The image is large and has few channels, so that the rows that bands share are soon computed again."""
    around = PlannedWindow((3, 3), (1, 1), (1, 1), Padding(1, 1, 1, 1))
    attributes = band_kernels.ConvolutionDepthwise(POINTWISE, around, ())

    def rows(size: int, channels: int) -> int:
        src, dst = Geometry((1, size, size, channels)), Geometry((1, size, size, 2 * channels))
        return band_kernels.band_candidates(attributes, Storage(src, "float"), dst, CPU)[0].tile.rows

    assert rows(56, 64) == 28
    assert rows(14, 512) == 14


@pytest.mark.parametrize("width", [8, 16])
def test_narrow_registers_compute_a_pair_of_many_products_as_two_kernels(width: int) -> None:
    target = replace(CPU, limits=replace(CPU.limits, vector_width=width))
    around = PlannedWindow((3, 3), (1, 1), (1, 1), Padding(1, 1, 1, 1))
    attributes = band_kernels.ConvolutionDepthwise(POINTWISE, around, ())
    src, dst = Storage(Geometry((1, 33, 33, 32)), "float"), Geometry((1, 33, 33, 192))
    work = band_kernels.band_work(Band(1, dst.height), attributes, src, dst, target)
    alone = cycles(PairWork(work, Storage(dst, "float"), depthwise_rate(around, target)), target)
    assert (band_kernels.band_candidates(attributes, src, dst, target)[0].cycles < alone) == (width == 16)
