"""Elementwise operators of StableHLO that LiteRT's GPU delegate or its CPU interpreter takes.

STABLEHLO_COMPOSITE is inlined, see :mod:`tflgpu.frontend.control_flow.call`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tflgpu.graph.ir import EpilogueOp, Tensor, Value
from tflgpu.ops.arithmetic.elementwise import map_inputs, map_node
from tflgpu.ops.declaration import ANY, FLOATS, Emitter, Site, declare, judged
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node

_INTEGERS = frozenset(("int16", "int32"))
_BITS = frozenset(("int8", "int16", "int32"))


def _same_kind(site: Site) -> Iterator[str]:
    """Obstacles of an operator whose inputs have one shape and one element type; StableHLO does not broadcast."""
    kinds = {(t.shape, t.dtype) for t in site.inputs if t is not None}
    if len(kinds) > 1:
        yield "its inputs differ in shape or element type"


declare("STABLEHLO_CBRT", versions=1, inputs=1)(map_inputs)
declare("STABLEHLO_REMAINDER", versions=1, inputs=2, types=FLOATS | _INTEGERS, reasons=_same_kind)(map_inputs)


_FUNCTIONS = {"ADD": "add", "MULTIPLY": "mul", "MAXIMUM": "maximum", "MINIMUM": "minimum", "AND": "logical_and"}


def _joined(site: Site, emit: Emitter, function: str) -> Tensor:
    return map_node(site, emit, function, [site.input(0), site.input(1)])


for _name, _function in _FUNCTIONS.items():
    _types = frozenset(("bool",)) if _name == "AND" else FLOATS | _INTEGERS | {"int64"}
    _emit = partial(_joined, function=_function)
    declare(f"STABLEHLO_{_name}", versions=1, inputs=2, types=_types, reasons=_same_kind)(_emit)


@declare("STABLEHLO_SHIFT_LEFT", versions=1, inputs=2, types=_BITS, reasons=_same_kind)
def shift_left(site: Site, emit: Emitter) -> Tensor:
    """By the low five bits of the second input."""
    x, y = site.input(0), site.input(1)
    if x.dtype == "int32":
        return map_inputs(site, emit)
    shifted = map_node(site, emit, "shift_left", [x, y], dtype="int32")
    return emit.node("map", [shifted], x.shape, epilogue=(EpilogueOp(f"to_{x.dtype}", (Value(0),)),), dtype=x.dtype)


def _clamp_reasons(site: Site) -> Iterator[str]:
    x = site.input(1)
    for i, what in ((0, "least"), (2, "greatest")):
        limit = site.input(i)
        if limit.dtype != x.dtype or limit.shape not in ((), x.shape):
            yield f"its {what} value does not fit its input: {limit.dtype} of shape {list(limit.shape)}"


@declare("STABLEHLO_CLAMP", versions=1, inputs=3, types=FLOATS | _INTEGERS, reasons=_clamp_reasons)
def clamp(site: Site, emit: Emitter) -> Tensor:
    """Return the second input between the first and the third one. NaN stays."""
    least, x, greatest = (site.input(i) for i in range(3))
    return map_node(site, emit, "minimum", [greatest, map_node(site, emit, "maximum", [least, x])])


def _broadcast_reasons(site: Site) -> Iterator[str]:
    x, shape, axes = site.input(0).shape, site.output_shapes[0], site.options.get("broadcast_dimensions", ())
    if site.resized or shape is None:
        yield "the shape of its result is in the file alone, which does not know that of its input"
    elif len(axes) != len(x) or len(set(axes)) != len(axes) or not all(0 <= a < len(shape) for a in axes):
        yield f"its axes {list(axes)} are not those of its input {list(x)} in its result {list(shape)}"
    elif any(size not in (1, shape[a]) for size, a in zip(x, axes, strict=True)):
        yield f"its input of shape {list(x)} does not broadcast along axes {list(axes)} of {list(shape)}"


@declare("STABLEHLO_BROADCAST_IN_DIM", versions=1, inputs=1, types=ANY, reasons=_broadcast_reasons)
def broadcast_in_dim(site: Site, emit: Emitter) -> Tensor:
    """Axes of the input become the named ones of the result, along which axes of size 1 are repeated."""
    x, shape, axes = site.input(0), judged(site.output_shapes[0]), site.options.get("broadcast_dimensions", ())
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    if order != list(range(len(axes))):
        moved = Rearrange(tuple(AxisMap(order.index(i)) for i in range(len(axes))))
        x = emit.node("rearrange", [x], tuple(x.shape[i] for i in order), moved)
    sizes = dict(zip(sorted(axes), x.shape, strict=True))
    return emit.node("map", [reshape_node(emit, x, tuple(sizes.get(a, 1) for a in range(len(shape))))], shape)
