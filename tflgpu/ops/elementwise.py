"""Elementwise operators: each becomes a ``map`` node with one step, ready to fuse into its producer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tflgpu.ir import Step, Tensor, Value, broadcasts_to
from tflgpu.ops.access import access
from tflgpu.ops.base import Emit, Emitter, Site, declare, operands_of
from tflgpu.ops.kernel import Kernel, Request, items_per_tile, tile_count, variant

UNARY = {
    "RELU": "relu",
    "RELU6": "relu6",
    "RELU_N1_TO_1": "relu_n1_to_1",
    "RELU_0_TO_1": "relu_0_to_1",
    "HARD_SWISH": "hard_swish",
    "ELU": "elu",
    "LOGISTIC": "logistic",
    "TANH": "tanh",
    "EXP": "exp",
    "LOG": "log",
    "SQRT": "sqrt",
    "RSQRT": "rsqrt",
    "SQUARE": "square",
    "ABS": "abs",
    "NEG": "neg",
    "SIN": "sin",
    "COS": "cos",
    "FLOOR": "floor",
    "CEIL": "ceil",
    "ROUND": "round",
    "SIGN": "sign",
}

BINARY = {
    "ADD": "add",
    "SUB": "sub",
    "MUL": "mul",
    "DIV": "div",
    "MAXIMUM": "maximum",
    "MINIMUM": "minimum",
    "SQUARED_DIFFERENCE": "squared_difference",
}


def map_node(site: Site, emit: Emitter, function: str, operands: Sequence[Tensor]) -> Tensor:
    """One step over broadcast operands, then the fused activation.

    The kernel walks a *primary* input: a computed one of the full shape if there is one, so that it can be
    fused with the node that computes it.
    """
    shape = np.broadcast_shapes(*(t.shape for t in operands))
    full = [t for t in operands if t.shape == shape]
    primary = next((t for t in full if not t.is_constant), full[0] if full else operands[0])
    inputs, refs = operands_of(primary, operands)
    if len(operands) == 2 and operands[0].id == operands[1].id and function == "mul":
        function, refs = "square", refs[:1]
    step = Step(function, tuple(refs))
    return emit.node("map", inputs, shape, steps=(step, *emit.activation(site, after=1)))


def _broadcast_reasons(site: Site) -> Iterator[str]:
    shapes = [t.shape for t in site.inputs if t is not None]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        yield f"its inputs of shapes {' and '.join(map(str, map(list, shapes)))} do not broadcast"


def _unary(function: str) -> Emit:
    return lambda site, emit: map_node(site, emit, function, [site.input(0)])


def _binary(function: str) -> Emit:
    return lambda site, emit: map_node(site, emit, function, [site.input(0), site.input(1)])


for _code, _function in UNARY.items():
    declare(_code, versions=3, inputs=1)(_unary(_function))
for _code, _function in BINARY.items():
    declare(_code, versions=6, inputs=2, reasons=_broadcast_reasons)(_binary(_function))


@declare("QUANTIZE", versions=4, inputs=1)
@declare("DEQUANTIZE", versions=6, inputs=1)
def requantize(site: Site, emit: Emitter) -> Tensor:
    """Nothing to compute in the float view: the output's own quantization is simulated by the lowering."""
    return emit.node("map", [site.input(0)], site.input(0).shape)


def _prelu_reasons(site: Site) -> Iterator[str]:
    x, alpha = site.input(0), site.input(1)
    if not broadcasts_to(alpha.shape, x.shape):
        yield f"its slope of shape {list(alpha.shape)} does not broadcast to the input's {list(x.shape)}"


@declare("PRELU", versions=1, inputs=2, reasons=_prelu_reasons)
def prelu(site: Site, emit: Emitter) -> Tensor:
    return map_node(site, emit, "prelu", [site.input(0), site.input(1)])


@declare("LEAKY_RELU", versions=2, inputs=1)
def leaky_relu(site: Site, emit: Emitter) -> Tensor:
    x = site.input(0)
    step = Step("leaky_relu", (Value(0),), (float(site.options.get("alpha", 0.0)),))
    return emit.node("map", [x], x.shape, steps=(step,))


@variant("map")
def map_kernel(request: Request) -> Kernel:
    target, g, source = request.target, request.output.geometry, request.operand("src", 0)
    linear = source.tensor is not None and request.input(0).linear
    primary = access("src", source.type, request.shape(0).shape, g.shape, linear=linear)
    pixels = 4 if target.family == "cpu" else 1
    items = g.batch * g.slices * (g.plane // pixels + g.plane % pixels)
    per_tile = items_per_tile(items, target, 4 * pixels * (1 + len(request.node.steps)))
    return Kernel(
        "map",
        {"primary": primary, "pixels": pixels, "per_tile": per_tile, "dirty": primary.splat},
        (source,),
        tiles=tile_count(items, per_tile),
        local_size=target.local_size,
        value_type=primary.vector,
    )
