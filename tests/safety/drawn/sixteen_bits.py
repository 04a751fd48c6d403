"""Random networks of 16-bit activations, with the scales that a converter finds for them.

A network is drawn twice by the same seed: of floats, whose greatest magnitudes LiteRT tells, and of integers.
``python -m tests.safety.drawn.sixteen_bits SEED COUNT`` counts by how many steps networks differ from LiteRT's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

import tflgpu
from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer import ModelBuilder

Array = NDArray[Any]
Shape = tuple[int, ...]

KERNEL_SETS = (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, OpResolverType.BUILTIN_REF)

RUNS = 2  # the second begins with the state that the first left

UNIT = 1 / 32768  # the scale that LiteRT asks of results between -1 and 1


@dataclass
class Network:
    """A network under construction. ranges: the greatest magnitudes of its tensors, in order; None of one of floats."""

    seed: int
    ranges: Sequence[float] | None
    builder: ModelBuilder = field(default_factory=ModelBuilder)
    scales: list[float] = field(default_factory=list)
    shapes: dict[int, Shape] = field(default_factory=dict)  # by the tensors' indices
    outputs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random, self.rng = Random(self.seed), np.random.default_rng(self.seed)

    def scale(self, tensor: int) -> float:
        return self.scales[[*self.shapes].index(tensor)]

    def activation(self, shape: Shape, make: Callable[..., int], scale: float = 0.0, same: int | None = None) -> int:
        """A tensor with this scale, that of another one, or the one that its range asks for."""
        if self.ranges is None:
            tensor = make(shape)
        else:
            own = max(self.ranges[len(self.shapes)], 1e-3) / 32767
            self.scales.append(float(np.float32(scale or (own if same is None else self.scale(same)))))
            tensor = make(shape, "int16", quantization=Quantization((self.scales[-1],), (0,)))
        self.shapes[tensor] = shape
        return tensor

    def op(
        self,
        code: str,
        inputs: Sequence[int],
        shape: Shape,
        options: Mapping[str, object] | None = None,
        scale: float = 0.0,
        same: int | None = None,
    ) -> int:
        result = self.activation(shape, self.builder.tensor, scale, same)
        self.builder.op(code, inputs, [result], options)
        return result

    def integers(self, values: Sequence[int]) -> int:
        return self.builder.constant(np.array(values, np.int32))

    def weights(self, x: int, shape: Shape, axis: int, fan_in: float) -> list[int]:
        """Weights and a bias."""
        w = self.rng.standard_normal(shape) / np.sqrt(fan_in)
        b = self.rng.standard_normal(shape[axis]) * 0.2
        if self.ranges is None:
            return [self.builder.constant(n.astype(np.float32)) for n in (w, b)]
        rest = tuple(i for i in range(len(shape)) if i != axis)
        scales = (np.abs(w).max(rest, keepdims=True) / 127).astype(np.float32)
        integers, own, zeros = np.rint(w / scales).astype(np.int8), scales.reshape(-1).tolist(), (0,) * shape[axis]
        sums = tuple(self.scale(x) * scale for scale in own)
        bias = np.rint(b / np.array(sums)).astype(np.int64)
        return [
            self.builder.constant(integers, quantization=Quantization(tuple(own), zeros, axis)),
            self.builder.constant(bias, quantization=Quantization(sums, zeros)),
        ]

    def constant(self, shape: Shape) -> int:
        values = self.rng.standard_normal(shape)
        if self.ranges is None:
            return self.builder.constant(values.astype(np.float32))
        scale = float(np.float32(np.abs(values).max() / 32767))
        integers = np.rint(values / scale).clip(-32767, 32767).astype(np.int16)
        return self.builder.constant(integers, quantization=Quantization((scale,), (0,)))

    def slopes(self, shape: Shape) -> int:
        """Slopes of 8 bits, of which some are negative."""
        integers, scale = self.rng.integers(-128, 128, shape).astype(np.int8), 1 / 256
        if self.ranges is None:
            return self.builder.constant(integers.astype(np.float32) * np.float32(scale))
        return self.builder.constant(integers, quantization=Quantization((scale,), (0,)))

    def clamp(self) -> str:
        return self.random.choice(("NONE", "RELU", "RELU", "RELU6"))

    def layer(self, code: str, x: int, shape: Shape, weights: Shape, axis: int, **options: object) -> int:
        operands = self.weights(x, weights, axis, prod(weights) / weights[axis])
        window = {"padding": "SAME", "stride_h": 1, "stride_w": 1} if code != "FULLY_CONNECTED" else {}
        options = {**window, "fused_activation_function": self.clamp(), **options}
        return self.op(code, [x, *operands], shape, options)


def convolution(net: Network, x: int) -> int:
    shape, out, side = net.shapes[x], net.random.choice((8, 12, 16)), net.random.choice((1, 3, 5))
    return net.layer("CONV_2D", x, (*shape[:3], out), (out, side, side, shape[3]), 0)


def depthwise(net: Network, x: int) -> int:
    b, h, w, c = net.shapes[x]
    stride = net.random.choice((1, 1, 2)) if h > 3 else 1
    options = {"stride_h": stride, "stride_w": stride, "depth_multiplier": 1}
    return net.layer("DEPTHWISE_CONV_2D", x, (b, -(-h // stride), -(-w // stride), c), (1, 3, 3, c), 3, **options)


def transposed(net: Network, x: int) -> int:
    b, h, w, c = net.shapes[x]
    if h > 8:
        return convolution(net, x)
    shape = (b, 2 * h, 2 * w, 4)
    weights, bias = net.weights(x, (4, 3, 3, c), 0, 9 * c / 4)
    options = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
    return net.op("TRANSPOSE_CONV", [net.integers(shape), weights, x, bias], shape, options)


def combined(net: Network, x: int) -> int:
    code, shape = net.random.choice(("ADD", "SUB", "MUL", "ADD")), net.shapes[x]
    y = net.random.choice([t for t, other in net.shapes.items() if other == shape])
    if net.random.random() < 0.3:
        y = net.constant(net.random.choice((shape[-1:], shape)))
    options: dict[str, object] = {"fused_activation_function": net.clamp() if net.random.random() < 0.4 else "NONE"}
    options |= {} if code == "MUL" else {"pot_scale_int16": False}
    return net.op(code, net.random.choice(([x, y], [y, x])), shape, options)


FUNCTIONS = ("ABS", "EXP", "GELU", "LEAKY_RELU", "LOGISTIC", "PRELU", "RELU", "SOFTMAX", "SQRT", "TANH")


def function(net: Network, x: int) -> int:
    """A function of numbers of its domain."""
    code, shape = net.random.choice(FUNCTIONS), net.shapes[x]
    before = {"EXP": "TANH", "SQRT": "ABS"}.get(code)
    if before is not None:
        x = net.op(before, [x], shape, scale=UNIT if before == "TANH" else 0.0)
    approximates, alpha = net.random.random() < 0.5, net.random.choice((0.2, -0.3))
    options: dict[str, dict[str, object]] = {
        "GELU": {"approximate": approximates},
        "LEAKY_RELU": {"alpha": alpha},
        "SOFTMAX": {"beta": 1.0},
    }
    slopes = [net.slopes(shape[-1:])] if code == "PRELU" else []
    scale = UNIT if code in ("LOGISTIC", "TANH", "SOFTMAX") else 0.0
    return net.op(code, [x, *slopes], shape, options.get(code), scale)


def powers_of_two(net: Network, x: int) -> int:
    """Sums of operands whose scales are powers of two, by the default of the options."""
    shape, code = net.shapes[x], net.random.choice(("ADD", "SUB"))
    first, second = (net.op(squash, [x], shape, scale=UNIT) for squash in ("LOGISTIC", "TANH"))
    product = net.op("MUL", [first, second], shape, scale=4 * UNIT)
    return net.op(code, net.random.choice(([second, product], [product, second])), shape, scale=4 * UNIT)


def gate(net: Network, x: int) -> int:
    shape = net.shapes[x]
    return net.op("MUL", [x, net.op("LOGISTIC", [x], shape, scale=UNIT)], shape)


def pool(net: Network, x: int) -> int:
    b, h, w, c = net.shapes[x]
    if h < 2:
        return x
    options = {"padding": "VALID", "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}
    code = net.random.choice(("AVERAGE_POOL_2D", "MAX_POOL_2D"))
    return net.op(code, [x], (b, h // 2, w // 2, c), options, same=x)


def mean(net: Network, x: int) -> int:
    b, _, _, c = net.shapes[x]
    return net.op("MEAN", [x, net.integers([1, 2])], (b, 1, 1, c), {"keep_dims": True})


def excite(net: Network, x: int) -> int:
    squeezed = mean(net, x)
    shape = net.shapes[squeezed]
    hidden = net.layer("CONV_2D", squeezed, shape, (shape[3], 1, 1, shape[3]), 0)
    return net.op("MUL", [x, net.op("LOGISTIC", [hidden], shape, scale=UNIT)], net.shapes[x])


def attention(net: Network, x: int) -> int:
    b, h, w, c = net.shapes[x]
    rows = net.op("RESHAPE", [x, net.integers([b, h * w, c])], (b, h * w, c), same=x)
    scores = net.op("BATCH_MATMUL", [rows, rows], (b, h * w, h * w), {"adj_y": True})
    shares = net.op("SOFTMAX", [scores], net.shapes[scores], {"beta": 1.0}, UNIT)
    y = net.op("BATCH_MATMUL", [shares, rows], (b, h * w, c))
    return net.op("RESHAPE", [y, net.integers([b, h, w, c])], (b, h, w, c), same=y)


BLOCKS = (
    *(convolution, convolution, convolution, depthwise, depthwise, combined, combined, function, function),
    *(gate, pool, excite, attention, transposed, powers_of_two),
)


def build(seed: int, ranges: Sequence[float] | None, blocks: Sequence[Callable[[Network, int], int]]) -> Network:
    """A network with two outputs: an image, and a row of a classifier."""
    net = Network(seed, ranges)
    side = net.random.choice((6, 8, 12))
    x = net.activation((1, side, side, net.random.choice((3, 4, 8))), net.builder.input)
    for _ in range(net.random.randint(5, 10)):
        x = net.random.choice(blocks)(net, x)
    pooled = mean(net, x)
    row = net.layer("FULLY_CONNECTED", pooled, (1, 10), (10, net.shapes[pooled][3]), 0)
    net.outputs = [x, row]
    return net


def drawn(seed: int, blocks: Sequence[Callable[[Network, int], int]] = BLOCKS) -> tuple[bytes, list[Array]]:
    """A model of integers, and its inputs."""
    floats = build(seed, None, blocks)
    x = np.random.default_rng(seed).standard_normal(next(iter(floats.shapes.values()))).astype(np.float32)
    judge = _invoked(floats.builder.finish(floats.outputs), [x], OpResolverType.BUILTIN_REF, preserves=True)
    net = build(seed, [float(np.abs(judge.get_tensor(t)).max()) for t in floats.shapes], blocks)
    integers = np.rint(x / net.scales[0]).clip(-32768, 32767).astype(np.int16)
    return net.builder.finish(net.outputs), [integers]


def drawn_lstm(seed: int) -> tuple[bytes, list[Array]]:
    """An LSTM of 8 bits, whose gates and cells have 16, and its input. Peepholes come without a projection."""
    rng, builder = np.random.default_rng(seed), ModelBuilder()
    batch, times, depth, cells, outputs = (int(n) for n in rng.integers((1, 1, 2, 2, 2), (4, 14, 24, 24, 24)))
    kinds, clip, gain = int(rng.integers(6)), rng.choice((0, 0, 0.7)), float(rng.choice((0.6, 1.5, 4)))
    projects, peeps, has_input_gate = kinds % 3 == 0, kinds % 3 == 1, kinds < 3
    outputs = outputs if projects else cells

    def grid() -> Quantization:
        return Quantization((float(np.float32(rng.uniform(0.004, 0.02))),), (int(rng.integers(-60, 60)),))

    def weights(shape: Shape, dtype: str = "int8") -> tuple[int, float]:
        values = rng.standard_normal(shape) * gain / np.sqrt(shape[-1])
        scale = float(np.float32(np.abs(values).max() / np.iinfo(dtype).max))
        integers = np.rint(values / scale).astype(dtype)
        return builder.constant(integers, quantization=Quantization((scale,), (0,))), scale

    def bias(size: int, scale: float) -> int:
        integers = np.rint(rng.standard_normal(size) * 0.4 / scale).astype(np.int32)
        return builder.constant(integers, quantization=Quantization((scale,), (0,)))

    taken, kept, shown = grid(), grid(), grid()
    shown = shown if projects else kept
    cell = Quantization((2.0 ** -int(rng.integers(9, 16)),), (0,))
    inputs = {0: builder.input((batch, times, depth), "int8", quantization=taken)}
    for gate in range(0 if has_input_gate else 1, 4):
        inputs[1 + gate], scale = weights((cells, depth))
        inputs[5 + gate], _ = weights((cells, outputs))
        inputs[12 + gate] = bias(cells, scale * taken.scale[0])
        if peeps and gate != 2:
            inputs[{0: 9, 1: 10, 3: 11}[gate]], _ = weights((cells,), "int16")
    if projects:
        inputs[16], scale = weights((outputs, cells))
        inputs[17] = bias(outputs, scale * shown.scale[0])
    inputs[18] = builder.tensor((batch, outputs), "int8", quantization=kept, is_variable=True)
    inputs[19] = builder.tensor((batch, cells), "int16", quantization=cell, is_variable=True)
    gates = [builder.tensor((1,), "int16", quantization=Quantization((2.0**-12,), (0,))) for _ in range(4)]
    between = [*gates, builder.tensor((1,), "int8", quantization=shown)]
    result = builder.tensor((batch, times, outputs), "int8", quantization=kept)
    options = {"fused_activation_function": "TANH", "cell_clip": float(clip), "proj_clip": float(clip)}
    places = [inputs.get(place, -1) for place in range(24)]
    builder.op("UNIDIRECTIONAL_SEQUENCE_LSTM", places, [result], options, intermediates=between)
    return builder.finish([result]), [rng.integers(-128, 128, (batch, times, depth)).astype(np.int8)]


def _invoked(data: bytes, inputs: Sequence[Array], kernels: OpResolverType, *, preserves: bool = False) -> Interpreter:
    judge = Interpreter(
        model_content=data, experimental_op_resolver_type=kernels, experimental_preserve_all_tensors=preserves
    )
    judge.allocate_tensors()
    for detail, value in zip(judge.get_input_details(), inputs, strict=True):
        judge.set_tensor(detail["index"], value)
    for _ in range(RUNS):
        judge.invoke()
    return judge


def litert_answers(data: bytes, inputs: Sequence[Array]) -> list[Array]:
    """The answers of LiteRT's reference kernels, with which its other sets agree."""
    sets = [_invoked(data, inputs, kernels) for kernels in KERNEL_SETS]
    answers = [[judge.get_tensor(d["index"]) for d in judge.get_output_details()] for judge in sets]
    for others in answers[:-1]:
        for answer, reference in zip(others, answers[-1], strict=True):
            np.testing.assert_array_equal(answer, reference)
    return answers[-1]


def differences(model: tflgpu.CompiledModel, cases: Sequence[tuple[bytes, list[Array]]]) -> list[int]:
    """The greatest of each network, in steps. The model computes all of them, one after another."""
    inputs = [x for _, given in cases for x in given]
    outputs = iter([[*model.run(inputs).values()] for _ in range(RUNS)][-1])
    answers = [litert_answers(data, given) for data, given in cases]
    return [
        max(int(np.abs(next(outputs).astype(np.int64) - expected).max()) for expected in answer) for answer in answers
    ]


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:3])
    options = tflgpu.Options(cache="off", precision="fp32", fallback="forbid")
    steps = Counter[int]()
    for case in map(drawn, range(first, first + count)):
        with tflgpu.compile(case[0], options) as model:
            steps.update(differences(model, [case]))
    print("steps: networks", sorted(steps.items()))
