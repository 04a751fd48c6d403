"""Numbers that kernels, which count in 32 bits, must not be asked to reach; and types that a device does not have."""

from __future__ import annotations

import struct
import subprocess
import sys

import numpy as np
import pytest

import tflgpu
from tests.frontend.unit_windows import CODES, convolution
from tests.quick import on_first_runtime
from tests.support.models import Builder
from tests.support.planning import obstacles_of
from tflgpu.compiler import compile_model
from tflgpu.frontend.lower import lower
from tflgpu.model.reader import read_model
from tflgpu.target import Target

# In a process of its own, because what goes wrong here kills it.
RUN = """
import numpy as np, sys, tflgpu
from tests.frontend.unit_windows import CODES, convolution
device, *window = sys.argv[1:]
for code in CODES:
    for kernels in ("cpu", "gpu"):
        execution = tflgpu.Execution(kernels=kernels)
        options = tflgpu.Options(device=device, execution=execution, fallback="forbid", cache="off")
        model = tflgpu.compile(convolution(code, *map(int, window)), options)
        (y,) = model.run(np.ones((1, 5, 5, 8), np.float32)).values()
        print(code, kernels, set(y.reshape(-1).tolist()))
"""


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    ("dilation", "stride", "reach"),
    [(2**29, 1, 2147483670), (2**30, 1, 4294967318), (2**31 - 1, 1, 8589934610), (1, 2**30, 18253611011)],
)
def test_a_window_reaches_no_further_than_kernels_count(code: str, dilation: int, stride: int, reach: int) -> None:
    (reason,) = lower(read_model(convolution(code, dilation, stride))).obstacles
    assert f"reaches over {reach} pixels; kernels count to 2147483647" in reason


@pytest.mark.quick(when=lambda dilation, device_name: dilation > 1 and on_first_runtime(device_name))
@pytest.mark.parametrize(("dilation", "stride", "pixels"), [(2**28, 1, 1), (1, 2**26, 9)])
def test_windows_that_reach_almost_so_far_stay_in_the_image(
    device_name: str, dilation: int, stride: int, pixels: int
) -> None:
    """A large dilation leaves only the pixel in the middle in the image, a large stride only the first window."""
    command = [sys.executable, "-c", RUN, device_name, str(dilation), str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    channels = {"CONV_2D": 8, "grouped CONV_2D": 4, "DEPTHWISE_CONV_2D": 1}
    expected = [f"{code} {k} {{{float(channels[code] * pixels)}}}" for code in CODES for k in ("cpu", "gpu")]
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize(("index", "expected"), [(2, 2), (2**32 + 1, 4), (2**62, 4), (-(2**32) + 3, 0), (-(2**63), 0)])
@pytest.mark.parametrize("code", ["GATHER", "SLICE", "STRIDED_SLICE"])
def test_an_index_of_64_bits_stays_out_of_range(code: str, index: int, expected: int, device_name: str) -> None:
    """Its low 32 bits would be another index. TFLite counts negative ones of STRIDED_SLICE from the end."""
    builder = Builder()
    x, at, y = builder.input((5,)), builder.input((1,), "int64"), builder.tensor((1,))
    if code == "STRIDED_SLICE":
        ones = [builder.constant(np.ones(1, np.int64)) for _ in range(2)]
        y = builder.add(code, [x, at, *ones], (), shrink_axis_mask=1)
    else:
        size = [builder.constant(np.ones(1, np.int64))] if code == "SLICE" else []
        builder.op(code, [x, at, *size], [y])
    options = tflgpu.Options(device=device_name, fallback="forbid")
    model = tflgpu.compile(builder.finish([y]), options)
    (got,) = model.run([np.arange(5, dtype=np.float32), np.array([index])]).values()
    assert got.reshape(-1).tolist() == [expected]


def test_custom_pools_reach_no_further() -> None:
    builder = Builder()
    x, y, places = builder.input((1, 5, 5, 4)), builder.tensor((1, 1, 1, 4)), builder.tensor((1, 1, 1, 4))
    same, stride, kernel = 1, 2**31 - 1, 3
    options = struct.pack("<6i", same, stride, stride, kernel, kernel, 0)
    builder.op("MaxPoolingWithArgmax2D", [x], [y, places], custom_options=options)
    reasons = obstacles_of(builder.finish([y, places]))
    assert "stride 2147483647 and dilation 1 reaches over 36507222002 pixels" in reasons


def obstacles(code: str, inputs: list[np.ndarray], dtype: str, missing_types: tuple[str, ...] = ()) -> str:
    """The obstacles of operator ``code``, of whose inputs all are constant but the last one."""
    builder = Builder()
    *constants, last = inputs
    indices = [*map(builder.constant, constants), builder.input(last.shape, last.dtype.name)]
    output = builder.add(code, indices, (), dtype)
    return obstacles_of(builder.finish([output]), missing_types=missing_types)


def test_no_tensor_is_larger_than_kernels_count() -> None:
    shape = np.array([1 << 16, 1 << 15], np.int32)
    reason = obstacles("FILL", [np.array([10**9], np.int32), np.array(1.0, np.float32)], "float32")
    assert "its result has 1000000000 elements; at most 268435456 are made on the device" in reason
    builder = Builder()
    x = builder.input((1, 1))
    y = builder.add("BROADCAST_TO", [x, builder.constant(shape)], ())
    reason = obstacles_of(builder.finish([y]))
    assert "its result of shape [65536, 32768] has 2147483664 elements in memory" in reason


def test_a_range_is_not_made_before_its_size_is_known() -> None:
    builder = Builder()
    y = builder.add("RANGE", [builder.ints(n) for n in (0, 5 * 10**8, 1)], (), "int32")
    assert "its result has 500000000 elements" in obstacles_of(builder.finish([y]))


def test_a_radius_is_as_large_as_the_image_has_channels(device_name: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 2, 6), np.float32)

    def normalized(radius: int) -> np.ndarray:
        builder = Builder()
        given = builder.input(x.shape)
        options = {"radius": radius, "bias": 1.0, "alpha": 1.0, "beta": 0.5}
        y = builder.add("LOCAL_RESPONSE_NORMALIZATION", [given], x.shape, **options)
        (result,) = tflgpu.compile(builder.finish([y]), tflgpu.Options(device=device_name)).run(x).values()
        return result

    np.testing.assert_array_equal(normalized(2**31 - 1), normalized(6))


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_a_type_that_the_device_lacks_is_a_reason(dtype: str) -> None:
    value = np.zeros((1, 4), np.float32)
    assert obstacles("CAST", [value], dtype) == ""
    assert f"the device does not compute with {dtype}" in obstacles("CAST", [value], dtype, (dtype,))
    if dtype == "int64":  # its sum
        axes, x = np.array([1], np.int32), np.zeros((1, 4), np.int32)
        builder = Builder()
        given = builder.input(x.shape, "int32")
        y = builder.add("MEAN", [given, builder.constant(axes)], (1,), "int32")
        model = builder.finish([y])
        assert "does not compute with int64" in obstacles_of(model, missing_types=(dtype,))


def test_a_missing_type_sends_its_operators_to_the_cpu() -> None:
    builder = Builder()
    x = builder.input((1, 4))
    z = builder.add("NEG", [x], (1, 4))
    y = builder.add("CAST", [z], (1, 4), "float64", in_data_type="FLOAT32", out_data_type="FLOAT64")
    target = Target(family="gpu", compute_units=1, storage="half", missing_types=("float64",))
    (artifact,) = compile_model(builder.finish([y]), tflgpu.Options(), target)
    assert [type(part).__name__ for part in artifact.partitions] == ["DevicePartition", "CpuPartition"]
    assert "double" not in artifact.partitions[0].source  # type: ignore[union-attr]


def test_no_table_is_made_for_an_image_too_large_to_keep() -> None:
    """A table of 2^30 rows would take 12 GB."""
    builder = Builder()
    x, size = builder.input((1, 2, 2, 1)), builder.ints([2**30, 1])
    y = builder.add("RESIZE_NEAREST_NEIGHBOR", [x, size], ())
    (reason,) = lower(read_model(builder.finish([y]))).obstacles
    assert "its result of shape [1, 1073741824, 1, 1] has 4294967312 elements in memory" in reason


@pytest.mark.parametrize("mask", ["new_axis_mask", "ellipsis_mask"])
def test_masks_have_no_bits_without_an_entry(mask: str) -> None:
    """LiteRT counts them as axes of the result."""
    builder = Builder()
    x = builder.input((5,))
    numbers = [builder.ints([n]) for n in (0, 1, 1)]
    y = builder.add("STRIDED_SLICE", [x, *numbers], (1,), **{mask: 2})
    (reason,) = lower(read_model(builder.finish([y]))).obstacles
    assert "names more than its 1 entries" in reason


def test_little_does_not_become_all_memory() -> None:
    builder = Builder()
    x, times = builder.input((1, 1)), builder.ints([2**13, 2**16])
    y = builder.add("TILE", [x, times], ())
    (reason,) = lower(read_model(builder.finish([y]))).obstacles
    assert "its result has 536870912 elements; at most 268435456 are made on the device" in reason
