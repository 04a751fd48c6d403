"""Small models that together use every template that any device can run."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from tests.kernels.portable import crops, detections, sorted_rows
from tests.ops import reference, windows
from tests.ops.case import Net, Tensor, largest
from tests.ops.rows import recurrent
from tests.ops.rows.quantized import tabulate
from tests.ops.windows import Window
from tests.support import row_cases
from tflgpu.model.writer import ModelBuilder


def image_and_gates(net: Net, shape: Sequence[int], hidden: int) -> tuple[Tensor, Tensor]:
    """A squeeze-and-excitation without its product: a computed image and the gates of its channels."""
    x = _image(net, *shape)
    mean = net.op("MEAN", [x, net.integers([1, 2])], x.value.mean((1, 2), keepdims=True), {"keep_dims": True})
    y = _convolution(net, mean, hidden, Window((1, 1)))
    y = _convolution(net, y, shape[-1], Window((1, 1)))
    return x, net.op("MUL", [y, net.constant(np.array(1 / 6, np.float32))], y.value / 6)


def excitation(net: Net) -> Tensor:
    """An excitation of few channels, so that it is worth a kernel of its own on a device of one compute unit."""
    x, gates = image_and_gates(net, (1, 5, 7, 4), hidden=6)
    product = net.op("MUL", [x, gates], x.value * gates.value)
    return _convolution(net, product, 4, Window((1, 1)))


def _image(net: Net, *shape: int) -> Tensor:
    """A computed [B, H, W, C] tensor, so that kernels read it in PHWC4 and not as the host gives it."""
    return _swish(net, net.input(net.normal(shape)))


def _swish(net: Net, x: Tensor) -> Tensor:
    gate = net.op("LOGISTIC", [x], reference.logistic(x.value))
    return net.op("MUL", [x, gate], x.value * gate.value)


def _options(w: Window, **more: object) -> dict[str, object]:
    return {"padding": w.padding, "stride_h": w.stride[0], "stride_w": w.stride[1], **more}


def _convolution(net: Net, x: Tensor, out: int, w: Window, groups: int = 1, runtime: bool = False) -> Tensor:
    given = net.input if runtime else net.constant
    filters = given(net.normal((out, *w.kernel, x.shape[3] // groups), 0.3))
    bias = given(net.normal((out,)))
    value = windows.conv_2d(x.value, filters.value, bias.value, w)
    options = _options(w, dilation_h_factor=w.dilation[0], dilation_w_factor=w.dilation[1])
    return net.op("CONV_2D", [x, filters, bias], value, options, activation="RELU6")


def _depthwise(net: Net, x: Tensor, w: Window, multiplier: int = 1, runtime: bool = False) -> Tensor:
    given = net.input if runtime else net.constant
    filters = given(net.normal((1, *w.kernel, x.shape[3] * multiplier), 0.3))
    bias = given(net.normal(filters.shape[-1:]))
    value = windows.depthwise_conv_2d(x.value, filters.value, bias.value, w)
    options = _options(w, depth_multiplier=multiplier, dilation_h_factor=w.dilation[0], dilation_w_factor=w.dilation[1])
    return net.op("DEPTHWISE_CONV_2D", [x, filters, bias], value, options, activation="NONE")


def convolutions(net: Net) -> Tensor:
    """The host's 3 channels read directly; padding, stride and dilation; a residual that joins."""
    x = _convolution(net, net.input(net.normal((2, 7, 9, 3))), 10, Window((3, 3), (2, 2), padding="SAME"))
    y = _convolution(net, x, 10, Window((3, 2), dilation=(2, 1), padding="SAME"))
    return net.op("ADD", [x, y], x.value + y.value, activation="RELU")


def arg_extremes(net: Net) -> Tensor:
    """Along the channels and along another axis; as floats, to go on with."""
    x = _image(net, 2, 3, 4, 6)
    for code, axis, function in (("ARG_MAX", 3, np.argmax), ("ARG_MIN", 1, np.argmin)):
        index = net.op(
            code, [x, net.integers([axis])], function(x.value, axis).astype(np.int32), {"output_type": "int32"}
        )
        net.output(net.op("CAST", [index], index.value.astype(np.float64)))
    return x


def neighbours(net: Net) -> Tensor:
    """Local response normalization, and running sums along each kind of axis."""
    x = _image(net, 2, 3, 4, 6)
    options = {"radius": 2, "bias": 1.0, "alpha": 0.5, "beta": 0.75}
    squares = np.pad(x.value**2, ((0, 0),) * 3 + ((2, 2),))
    around = sum(squares[..., i : i + 6] for i in range(5))
    x = net.op("LOCAL_RESPONSE_NORMALIZATION", [x], x.value * (1 + 0.5 * around) ** -0.75, options)
    for axis in (3, 2):
        value = np.cumsum(x.value, axis)
        x = net.op("CUMSUM", [x, net.integers(axis)], value, {"exclusive": False, "reverse": False})
    return x


def positive(net: Net) -> Tensor:
    """The sum of the numbers at places of which only a run can tell how many there are."""
    x = net.input(net.normal((3, 5)))
    mask = net.op("GREATER", [x, net.constant(np.zeros((), np.float32))], x.value > 0)
    places = net.op("WHERE", [mask], np.argwhere(mask.value))
    found = net.op("GATHER_ND", [x, places], x.value[x.value > 0])
    return net.op("SUM", [found, net.integers([0])], found.value.sum(), {"keep_dims": False})


def unpooled(net: Net) -> Tensor:
    """Maxima that remember where they were, and go back there."""
    x = _swish(net, net.input(net.normal((2, 4, 6, 5))))
    options = struct.pack("<6i", 2, 2, 2, 2, 2, 0)
    window = Window((2, 2), (2, 2))
    pooled = windows.max_pool_2d(x.value, window)
    indices = np.argmax([pixels for _, _, pixels in window.taps(x.value)], axis=0)
    outputs = net.ops("MaxPoolingWithArgmax2D", [x], [pooled, indices.astype(np.float64)], custom_options=options)
    value = np.where(x.value == pooled.repeat(2, 1).repeat(2, 2), x.value, 0)
    return net.op("MaxUnpooling2D", outputs, value, custom_options=options)


def products(net: Net) -> Tensor:
    """Either side transposed or not; a batch axis that broadcasts; a depth that work-items share."""
    sides = ((1, 3, 6, 9), (2, 1, 6, 10)), ((3, 150), (5, 150)), ((2, 3, 5, 6), (1, 6, 7)), ((5, 6), (9, 5))
    others = ((1, 2, 300), (1, 300, 5)), ((2, 9, 6), (2, 6, 19)), ((2, 9, 6), (1, 11, 6))
    for i, (left, right) in enumerate(sides + others):
        x, y, adjoint = _image(net, *left), net.constant(net.normal(right, 0.3)), (i in (0, 3), i in (1, 3, 6))
        factors = [np.swapaxes(t.value, -1, -2) if swap else t.value for t, swap in zip((x, y), adjoint, strict=True)]
        result = net.op("BATCH_MATMUL", [x, y], np.matmul(*factors), {"adj_x": adjoint[0], "adj_y": adjoint[1]})
        net.output(result)
    return _swish(net, result)


def wide_convolution(net: Net) -> Tensor:
    """Enough pixels and channels for the largest blocks, and a remainder of both."""
    return _convolution(net, _image(net, 1, 31, 33, 5), 36, Window((1, 1)))


def convolution_of_one_pixel(net: Net) -> Tensor:
    return _convolution(net, _image(net, 1, 1, 1, 9), 21, Window((1, 1)))


def convolutions_of_few_channels(net: Net) -> Tensor:
    """To one channel, and from one: each is two kernels."""
    x = _convolution(net, _image(net, 1, 6, 7, 12), 1, Window((5, 5), padding="SAME"))
    return _convolution(net, x, 18, Window((3, 7), padding="SAME"))


def packed_convolution(net: Net) -> Tensor:
    """On CPUs the image is packed for blocks of vectors: an incomplete run, padding, parts of the depth."""
    x = _image(net, 1, 6, 7, 36)
    return _convolution(net, x, 32, Window((3, 3), padding="SAME"))


def grouped_convolution(net: Net) -> Tensor:
    return _convolution(net, _image(net, 1, 5, 6, 12), 9, Window((2, 2)), groups=3)


def depthwise(net: Net) -> Tensor:
    """Before a convolution and behind one, which CPUs compute together."""
    x = _convolution(net, _depthwise(net, _image(net, 2, 6, 11, 7), Window((3, 3), (2, 2))), 18, Window((1, 1)))
    return _depthwise(net, _convolution(net, x, 7, Window((1, 1))), Window((3, 3), padding="SAME"))


def depthwise_with_multiplier(net: Net) -> Tensor:
    """A depthwise convolution, also with a long window, whose outputs share the pixels that they read."""
    net.output(_depthwise(net, _image(net, 1, 2, 40, 2), Window((1, 27), padding="SAME")))
    net.output(_depthwise(net, _image(net, 1, 10, 33, 5), Window((9, 31), padding="SAME")))
    net.output(_depthwise(net, _image(net, 1, 5, 6, 3), Window((3, 2), padding="SAME"), multiplier=6))
    return _depthwise(net, _image(net, 1, 5, 6, 3), Window((3, 3), padding="SAME"), multiplier=3)


def runtime_weights(net: Net) -> Tensor:
    """Convolutions of each kind, with blocks of output channels that are not full, and groups of whole slices."""
    net.output(_convolution(net, _image(net, 1, 5, 6, 12), 12, Window((2, 2)), groups=3, runtime=True))
    x = _convolution(net, _image(net, 1, 5, 6, 12), 9, Window((2, 2)), groups=3, runtime=True)
    x = _convolution(net, x, 18, Window((2, 1), padding="SAME"), runtime=True)
    x = _depthwise(net, x, Window((3, 3), padding="SAME"), runtime=True)
    return transpose_convolution(net, x, runtime=True)


def transpose_convolution(net: Net, x: Tensor | None = None, runtime: bool = False) -> Tensor:
    """Some phases have fewer rows or columns than others, and fewer taps."""
    x, w = x or _image(net, 1, 4, 3, 6), Window((3, 2), (2, 3), padding="SAME")
    filters = (net.input if runtime else net.constant)(net.normal((5, 3, 2, x.shape[3]), 0.3))
    size = 2 * x.shape[1] - 1, 3 * x.shape[2] - 1
    value = windows.transpose_conv(x.value, filters.value, np.zeros(1), w, size)
    return net.op("TRANSPOSE_CONV", [net.integers([1, *size, 5]), filters, x], value, _options(w), activation="NONE")


def fully_connected(net: Net) -> Tensor:
    x = _image(net, 2, 3, 3, 5)
    weights, bias = net.constant(net.normal((22, 45), 0.3)), net.constant(net.normal((22,)))
    value = reference.fully_connected(x.value, weights.value, bias.value)
    return net.op("FULLY_CONNECTED", [x, weights, bias], value, activation="NONE")


def pools(net: Net) -> Tensor:
    """Poolings with padding at all four borders, of different sizes."""
    x, w = _image(net, 1, 7, 5, 6), Window((4, 4), (1, 2), padding="SAME")
    options = _options(w, filter_height=4, filter_width=4)
    y = net.op("MAX_POOL_2D", [x], windows.max_pool_2d(x.value, w), options, activation="NONE")
    large, wide = _image(net, 1, 11, 13, 5), Window((9, 10), padding="SAME")  # whose sums have blocks
    sizes = _options(wide, filter_height=9, filter_width=10)
    value = windows.average_pool_2d(large.value, wide)
    net.output(net.op("AVERAGE_POOL_2D", [large], value, sizes, activation="NONE"))
    return net.op("AVERAGE_POOL_2D", [y], windows.average_pool_2d(y.value, w), options, activation="NONE")


def resize(net: Net) -> Tensor:
    for channels, size in ((17, (7, 3)), (5, (7, 9)), (5, (7, 3))):  # whole vectors of channels; wider rows; neither
        x = _image(net, 1, 4, 5, channels)
        value = reference.resize_bilinear(x.value, size, half_pixel_centers=True)
        resized = net.op("RESIZE_BILINEAR", [x, net.integers(size)], value, {"half_pixel_centers": True}, version=3)
        net.output(resized)
    return _swish(net, resized)


def means(net: Net) -> Tensor:
    """Means of one axis, of all the pixels that a work-group shares, and over channels."""
    x = _image(net, 2, 12, 13, 6)
    for axes in ([1], [1, 2]):
        net.output(net.op("MEAN", [x, net.integers(axes)], x.value.mean(tuple(axes))))
    return net.op("MEAN", [x, net.integers([3])], x.value.mean(3, keepdims=True), {"keep_dims": True})


def rearrangements(net: Net) -> Tensor:
    x = _image(net, 1, 3, 4, 6)
    margins = [(0, 0), (1, 2), (0, 1), (1, 0)]
    net.output(net.op("PAD", [x, net.integers(margins)], np.pad(x.value, margins)))
    net.output(net.op("TRANSPOSE", [x, net.integers([0, 3, 1, 2])], x.value.transpose(0, 3, 1, 2)))
    moved = net.op("TRANSPOSE", [x, net.integers([0, 2, 3, 1])], x.value.transpose(0, 2, 3, 1))
    net.output(net.op("SUM", [moved, net.integers([3])], moved.value.sum(3)))  # reads lanes past the last of 3 channels
    begin, end, strides = net.integers([0, 2, 0, 5]), net.integers([1, -4, 4, 0]), net.integers([1, -1, 2, -2])
    return net.op("STRIDED_SLICE", [x, begin, end, strides], x.value[0:1, 2:-4:-1, 0:4:2, 5:0:-2])


def reshape(net: Net) -> Tensor:
    """A sum over channels reads the lanes past the last one, which have to be zero."""
    x = _image(net, 2, 3, 5, 6)
    y = net.op("RESHAPE", [x, net.integers([4, 45])], x.value.reshape(4, 45), {"new_shape": [4, 45]})
    net.output(net.op("SUM", [y, net.integers([1])], y.value.sum(1)))
    return y


def gathers(net: Net) -> Tensor:
    """By digits of coordinates, by tables and by indices of the host, some of them out of range; over a background."""
    x = _image(net, 1, 3, 4, 6)
    net.output(net.op("TILE", [x, net.integers([1, 2, 1, 2])], np.tile(x.value, (1, 2, 1, 2))))
    margins = [(0, 0), (1, 2), (0, 1), (1, 0)]
    padded = reference.mirror_pad(x.value, margins, "REFLECT")
    net.output(net.op("MIRROR_PAD", [x, net.integers(margins)], padded, {"mode": "REFLECT"}))
    indices = net.input(np.array([3, 0, 9, -2], np.int32))
    net.output(net.op("GATHER", [x, indices], x.value[:, :, [3, 0, 3, 0]], {"axis": 2}))
    update, start = _image(net, 1, 2, 2, 5), net.input(np.array([0, 5, 1, -1], np.int32))
    value = reference.dynamic_update_slice(x.value, update.value, start.value)
    return net.op("DYNAMIC_UPDATE_SLICE", [x, update, start], value)


def concatenations(net: Net) -> Tensor:
    """Along channels that do and do not begin at whole quads, and along rows."""
    parts = [_image(net, 1, 2, 3, c) for c in (4, 3, 6)]
    y = net.op("CONCATENATION", parts, np.concatenate([p.value for p in parts], 3), {"axis": 3}, activation="NONE")
    y = _swish(net, y)
    return net.op("CONCATENATION", [y, y], np.concatenate([y.value] * 2, 1), {"axis": 1}, activation="NONE")


def recurrences(net: Net) -> Tensor:
    """LSTMs with every optional part and with none."""
    net.output(recurrent.sequence_node(net, recurrent.EVERYTHING, times=2, batch=2, depth=5, time_major=True))
    net.output(recurrent.sequence_node(net, recurrent.Lstm(6, 6), times=1, batch=3, depth=5, time_major=True))
    return recurrent.sequence_node(net, recurrent.Lstm(9, 9), times=3, batch=2, depth=4, time_major=False)


def looked_up(net: Net) -> Tensor:
    """Lookups of 16-bit numbers; the last quad has lanes to spare."""
    return tabulate(net, "EXP", (2, 3, 5, 6))


def broadcasts(net: Net) -> Tensor:
    """Operands that repeat along each axis, some of them in the host's order, and lanes that must be cleaned."""
    x = _image(net, 2, 3, 5, 6)
    for shape in ((1, 1, 6), (2, 1, 5, 1), (3, 1, 6), (1,)):
        y = net.input(net.normal(shape))
        x = net.op("ADD", [x, y], x.value + y.value, activation="NONE", magnitude=largest(y.value))
        x = net.op("EXP", [net.op("TANH", [x], np.tanh(x.value))], np.exp(np.tanh(x.value)))
    return x


def scattered(net: Net) -> Tensor:
    """Rows of two slices, two of which go to the same place; sums that the host reads, and sums that a kernel reads.

    Places that are known are in order.
    """
    at, shape = np.array([[2], [0], [2]], np.int32), net.integers([4, 6])
    x, counts = _image(net, 3, 6), net.input(np.arange(18, dtype=np.int32).reshape(3, 6))
    sums = []
    for given, places in ((x, net.constant(at)), (counts, net.input(at)), (counts, net.constant(at))):
        value = np.zeros((4, 6), given.value.dtype)
        np.add.at(value, [2, 0, 2], given.value)
        sums.append(net.op("SCATTER_ND", [places, given, shape], value, magnitude=largest(given.value)))
    body = ModelBuilder()
    options = {
        "update_window_dims": [1],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0],
        "index_vector_dim": 1,
        "update_computation_subgraph_index": net.subgraph(body, [(body.input(()), body.input(()))[1]]),
    }
    table = _image(net, 4, 6)
    value = table.value.copy()
    value[[2, 0, 2]] = x.value
    net.output(net.op("STABLEHLO_SCATTER", [table, net.input(at), x], value, options))
    net.output(sums[0])
    net.output(sums[2])
    return net.op("REVERSE_V2", [sums[1], net.integers([1])], sums[1].value[:, ::-1])


def bucketed(net: Net) -> Tensor:
    """Between boundaries; zero, which lanes past the last channel are, is in none of the first buckets."""
    x, boundaries = _image(net, 2, 3, 5, 6), np.array([-0.7, -0.1, 0.4], np.float32)
    found = np.searchsorted(boundaries, x.value, side="right").astype(np.int32)
    buckets = net.op("BUCKETIZE", [x], found, {"boundaries": boundaries})
    return net.op("CAST", [buckets], found.astype(np.float64))


CASES: tuple[Callable[[Net], Tensor], ...] = (
    convolutions,
    products,
    arg_extremes,
    neighbours,
    sorted_rows.greatest,
    positive,
    unpooled,
    wide_convolution,
    convolution_of_one_pixel,
    convolutions_of_few_channels,
    grouped_convolution,
    packed_convolution,
    depthwise,
    depthwise_with_multiplier,
    excitation,
    runtime_weights,
    transpose_convolution,
    crops.resampled,
    fully_connected,
    pools,
    resize,
    *row_cases.CASES,
    crops.around_landmarks,
    detections.found,
    means,
    rearrangements,
    scattered,
    reshape,
    gathers,
    concatenations,
    recurrences,
    broadcasts,
    bucketed,
    looked_up,
    recurrent.replaced_rows,
)
