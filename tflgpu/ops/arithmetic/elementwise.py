"""Elementwise operators: each becomes a ``map`` node with one epilogue op, which can be fused into its producer.

STABLEHLO_COMPOSITE is inlined, see :mod:`tflgpu.frontend.control_flow.call`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import frexp

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Tensor, Value, broadcasts_to
from tflgpu.model.quantization import Grid
from tflgpu.ops.checks import sign_check, zero_check
from tflgpu.ops.declaration import ANY, FLOATS, MANY, NUMBERS, Check, Emitter, Site, declare, judged, operands_of
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node
from tflgpu.target import vector_of

# The greatest supported version of each operator; the function of its epilogue op has its name. Versions differ in
# element types and ranks.
UNARY = {
    "ABS": 5,
    "CEIL": 1,
    "COS": 2,
    "ELU": 1,
    "EXP": 2,
    "FLOOR": 1,
    "HARD_SWISH": 1,
    "LOG": 2,
    "LOGISTIC": 3,
    "NEG": 1,
    "RELU": 3,
    "RELU6": 3,
    "RELU_0_TO_1": 1,
    "RELU_N1_TO_1": 1,
    "ROUND": 1,
    "RSQRT": 3,
    "SIGN": 2,
    "SIN": 2,
    "SQRT": 2,
    "SQUARE": 1,
    "TANH": 3,
}
BINARY = {
    "ADD": 6,
    "ATAN2": 1,
    "DIV": 2,
    "FLOOR_DIV": 3,
    "FLOOR_MOD": 2,
    "MAXIMUM": 4,
    "MINIMUM": 4,
    "MUL": 8,
    "POW": 1,
    "SQUARED_DIFFERENCE": 2,
    "SUB": 5,
}

# The element types besides floats of operators that have some: sums and products of integers wrap around, DIV
# truncates.
_INTEGERS = frozenset(("int16", "int32", "int64"))
_UNSIGNED = frozenset(("uint32",))
OTHER_TYPES = {
    **dict.fromkeys(("ABS", "NEG", "POW", "SQUARED_DIFFERENCE"), _INTEGERS),
    **dict.fromkeys(("ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "SUB"), _INTEGERS | _UNSIGNED),
    **dict.fromkeys(("FLOOR_DIV", "FLOOR_MOD"), _INTEGERS | _UNSIGNED | {"int8"}),
    "ATAN2": frozenset(("float64",)),
    "SIGN": frozenset(("int32", "float64")),
}

TANH = 4  # of the schema's ActivationFunctionType


def map_node(
    site: Site,
    emit: Emitter,
    function: str,
    operands: Sequence[Tensor],
    dtype: str | None = None,
    parameters: tuple[float, ...] = (),
) -> Tensor:
    """Return a map node: one epilogue op over broadcast operands, then the fused activation.

    The node's input 0 is a computed operand of the full shape if there is one, so that the node can be fused into the
    one that computes it.

    Args:
        site: The operator.
        emit: Gets the node.
        function: The op's.
        operands: In the op's order; they broadcast.
        dtype: The result's; None for that of the last operand.
        parameters: Constants of the op.
    """
    shape = np.broadcast_shapes(*(t.shape for t in operands))
    full = [t for t in operands if t.shape == shape]
    primary = next((t for t in full if not t.is_constant), full[0] if full else operands[0])
    inputs, refs = operands_of(primary, operands)
    if len(operands) == 2 and operands[0].id == operands[1].id and function == "mul":
        function, refs = "square", refs[:1]
    op = EpilogueOp(function, tuple(refs), parameters)
    epilogue = (op, *emit.activation(site, after=1))
    return emit.node("map", inputs, shape, epilogue=epilogue, dtype=dtype or operands[-1].dtype)


def broadcast_reasons(site: Site) -> Iterator[str]:
    """Obstacles of an operator whose inputs broadcast against each other."""
    shapes = [t.shape for t in site.inputs if t is not None]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        yield f"its inputs of shapes {' and '.join(map(str, map(list, shapes)))} do not broadcast"


def _binary_reasons(site: Site) -> Iterator[str]:
    yield from broadcast_reasons(site)
    x, y = site.input(0), site.input(1)
    if x.dtype != y.dtype:
        yield f"its inputs have different element types, {x.dtype} and {y.dtype}"
    elif x.dtype not in FLOATS:
        if x.dtype == "uint32" and site.options.get("fused_activation_function", 0):
            yield "its fused activation function does not apply to uint32"
        elif site.options.get("fused_activation_function") == TANH:
            yield "its fused activation function TANH does not apply to integers"
        if site.code == "POW" and y.data is not None and y.data.min() < 0:
            yield "it raises integers to negative powers"


def _binary_checks(site: Site, emit: Emitter) -> Iterator[Check]:
    """LiteRT takes a zero among the divisors of floats, but not in FLOOR_DIV."""
    whole = site.input(1).dtype not in FLOATS
    quantized = site.input_grids[1] is not None
    if (
        site.code == "FLOOR_DIV"
        or (whole and site.code == "FLOOR_MOD")
        or (site.code == "DIV" and (whole or quantized))
    ):
        yield from zero_check(emit, site, 1)
    elif site.code == "POW" and whole:
        yield from sign_check(emit, site, 1)


def map_inputs(site: Site, emit: Emitter) -> Tensor:
    """Return the function that has the operator's name, of all its inputs.

    Args:
        site: The operator.
        emit: Gets the node.
    """
    function = site.code.removeprefix("STABLEHLO_").lower()
    return map_node(site, emit, function, [site.input(i) for i in range(len(site.inputs))])


for _code, _most in UNARY.items():
    declare(_code, versions=_most, inputs=1, types=FLOATS | OTHER_TYPES.get(_code, frozenset()))(map_inputs)

for _code, _most in BINARY.items():
    _types = FLOATS | OTHER_TYPES.get(_code, frozenset())
    declare(_code, versions=_most, inputs=2, types=_types, reasons=_binary_reasons, checks=_binary_checks)(map_inputs)


_BITS = frozenset(("int8", "int16", "int32", "uint8", "uint16", "uint32"))

declare("BITWISE_XOR", versions=1, inputs=2, types=_BITS, reasons=_binary_reasons)(map_inputs)


@declare("RIGHT_SHIFT", versions=1, inputs=2, types=_BITS, reasons=_binary_reasons)
def right_shift(site: Site, emit: Emitter) -> Tensor:
    """By no less than 0 bits, and no more than all but one."""
    x, y = site.input(0), site.input(1)
    return map_node(site, emit, "right_shift", [x, y], parameters=(np.iinfo(x.dtype).bits - 1,))


def _quantize_reasons(site: Site) -> Iterator[str]:
    if site.output_types[0] != "float32":
        yield f"it makes {site.output_types[0]} values, and the device those of int8, uint8 and int16"


@declare("QUANTIZE", versions=6, inputs=1, reasons=_quantize_reasons)
@declare("DEQUANTIZE", versions=9, inputs=1, types=FLOATS | {"float16"})
def requantize(site: Site, emit: Emitter) -> Tensor:
    """Return the float view has nothing to compute: lowering adds the rounding to the output's grid."""
    return emit.node("map", [site.input(0)], site.input(0).shape, dtype="float32")


def _prelu_reasons(site: Site) -> Iterator[str]:
    x, alpha = site.input(0), site.input(1)
    if not broadcasts_to(alpha.shape, x.shape):
        yield f"its slope of shape {list(alpha.shape)} does not broadcast to the input's {list(x.shape)}"


declare("PRELU", versions=1, inputs=2, reasons=_prelu_reasons)(map_inputs)


@declare("LEAKY_RELU", versions=2, inputs=1)
def leaky_relu(site: Site, emit: Emitter) -> Tensor:
    """``x`` where it is positive, else ``x`` times a constant slope."""
    x = site.input(0)
    op = EpilogueOp("leaky_relu", (Value(0),), (float(site.options.get("alpha", 0.0)),))
    return emit.node("map", [x], x.shape, epilogue=(op,))


@declare("GELU", versions=3, inputs=1)
def gelu(site: Site, emit: Emitter) -> Tensor:
    """Gaussian error linear unit, exact or by tanh."""
    return map_node(site, emit, "gelu_approximate" if site.options.get("approximate") else "gelu", [site.input(0)])


def _add_n_reasons(site: Site) -> Iterator[str]:
    shapes, types = ({getattr(t, what) for t in site.inputs} for what in ("shape", "dtype"))
    if len(shapes) > 1 or len(types) > 1:
        yield "its inputs differ in shape or element type"


@declare("ADD_N", versions=1, inputs=(2, MANY), types=FLOATS | _INTEGERS, reasons=_add_n_reasons)
def add_n(site: Site, emit: Emitter) -> Tensor:
    """Return a chain of sums. Fusion merges them, up to the number of inputs that a kernel can take."""
    total = emit.node("map", [site.input(0)], site.input(0).shape)
    for i in range(1, len(site.inputs)):
        total = map_node(site, emit, "add", [total, site.input(i)])
    return total


COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")

BOOL = frozenset(("bool",))

_NARROW = frozenset(("int8", "uint8", "int16", "uint16"))

_REAL = FLOATS | {"float16", "float64"}

_COMPARISON_UNIT = 2.0**-8  # TFLite compares 8-bit tensors in multiples of this


def _comparison_reasons(site: Site) -> Iterator[str]:
    yield from broadcast_reasons(site)
    if site.input(0).dtype != site.input(1).dtype:
        yield f"it compares {site.input(0).dtype} with {site.input(1).dtype} values"


def _comparison(site: Site, emit: Emitter) -> Tensor:
    operands = [_fixed_point(emit, site.input(i), site.input_grids[i]) for i in range(2)]
    return map_node(site, emit, site.code.lower(), operands, "bool")


def _fixed_point(emit: Emitter, x: Tensor, grid: Grid | None) -> Tensor:
    """Return a quantized operand as TFLite compares 8-bit tensors: in multiples of 1/256, for every scale.

    TFLite takes the scale as ``mantissa * 2**exponent``. It rounds after multiplying by the mantissa, and again after
    shifting by the exponent (ComparisonWithScaling in its comparisons.h). A scale of 1 or more is not defined there.
    """
    if grid is None or grid.dtype not in ("int8", "uint8") or not 0 < grid.scale < 1:
        return x
    _, exponent = frexp(grid.scale)
    units = (2.0**exponent * _COMPARISON_UNIT, _COMPARISON_UNIT)
    limits = -(2.0**31), 2.0**31  # of 32-bit fixed point; values are far inside
    epilogue = tuple(EpilogueOp("fake_quantize", (Value(i),), (unit, 0.0, *limits)) for i, unit in enumerate(units))
    return emit.node("map", [x], x.shape, epilogue=epilogue, precise=True)


for _code in COMPARISONS:
    _types = ANY if _code in ("EQUAL", "NOT_EQUAL") else NUMBERS | {"uint32"}
    declare(_code, versions=5, inputs=2, types=_types, reasons=_comparison_reasons)(_comparison)


for _code in ("LOGICAL_AND", "LOGICAL_OR"):
    declare(_code, versions=1, inputs=2, types=BOOL, reasons=broadcast_reasons)(map_inputs)
declare("LOGICAL_NOT", versions=1, inputs=1, types=BOOL)(map_inputs)


def _choice_reasons(site: Site) -> Iterator[str]:
    condition, x, y = (site.input(i) for i in range(3))
    if condition.dtype != "bool":
        yield f"its condition has element type {condition.dtype}; bool was expected"
    if x.dtype != y.dtype:
        yield f"it chooses between {x.dtype} and {y.dtype} values"


def _select_reasons(site: Site) -> Iterator[str]:
    yield from _choice_reasons(site)
    condition, x, y = (site.input(i).shape for i in range(3))
    if x != y:
        yield f"it chooses between shapes {list(x)} and {list(y)}"
    elif condition not in ((), x[:1], x):
        yield f"its condition of shape {list(condition)} fits neither elements nor rows of its inputs {list(x)}"


@declare("SELECT", versions=4, inputs=3, types=ANY, reasons=_select_reasons)
def select(site: Site, emit: Emitter) -> Tensor:
    """Return a condition of rank 1 chooses whole rows: it follows the first axis, where broadcasting would take the
    last."""
    condition, x, y = (site.input(i) for i in range(3))
    if len(condition.shape) == 1:
        condition = reshape_node(emit, condition, condition.shape + (1,) * (len(x.shape) - 1))
    return map_node(site, emit, "select", [condition, x, y])


def _select_v2_reasons(site: Site) -> Iterator[str]:
    yield from _choice_reasons(site)
    yield from broadcast_reasons(site)


@declare("SELECT_V2", versions=2, inputs=3, types=ANY, reasons=_select_v2_reasons)
def select_v2(site: Site, emit: Emitter) -> Tensor:
    """Elements of the second input where the first one is true, else of the third."""
    return map_node(site, emit, "select", [site.input(i) for i in range(3)])


def _conversion(source: str, target: str) -> tuple[str, ...]:
    """Functions of epilogue ops that convert element types: floats saturate, integers wrap around."""
    if target == "bool":
        return ("to_bool",) if source != "bool" else ()
    if target in _NARROW and source in _REAL:
        return (f"saturated_{target}",)
    vector = vector_of(target)
    whole = (f"to_{vector}",) if vector != vector_of(source) else ()
    if target == "float16" and source != "float16":
        return (*whole, "to_float16")
    return (*whole, f"to_{target}") if target in _NARROW and source not in (target, "bool") else whole


def _cast_reasons(site: Site) -> Iterator[str]:
    if site.output_types[0] not in ANY:
        yield f"it converts to {site.output_types[0]}; only {', '.join(sorted(ANY))} are supported"


# Functions of epilogue ops that keep all bits, of types of one size.
_SAME_BITS: dict[tuple[str, str], tuple[str, ...]] = {
    ("float32", "int32"): ("bits_of_float",),
    ("float32", "uint32"): ("bits_of_float", "to_uint"),
    ("int32", "float32"): ("float_of_bits",),
    ("int32", "uint32"): ("to_uint",),
    ("uint32", "float32"): ("to_int", "float_of_bits"),
    ("uint32", "int32"): ("to_int",),
    ("int16", "uint16"): ("to_uint16",),
    ("uint16", "int16"): ("to_int16",),
    ("int8", "uint8"): ("to_uint8",),
    ("uint8", "int8"): ("to_int8",),
}


def _bitcast_reasons(site: Site) -> Iterator[str]:
    source, target = site.input(0).dtype, site.output_types[0]
    if site.input_grids[0] or site.output_grids[0]:
        yield "its input or output is quantized, and the device does not store its bits"
    elif source != target and (source, target) not in _SAME_BITS:
        yield f"it reads {source} as {target}; only {', '.join(f'{a} as {b}' for a, b in _SAME_BITS)} are supported"


@declare("BITCAST", versions=1, inputs=1, types=ANY, reasons=_bitcast_reasons)
def bitcast(site: Site, emit: Emitter) -> Tensor:
    """Return the same bits as another element type."""
    x, target = site.input(0), site.output_types[0]
    emit.keep(x)
    epilogue = tuple(EpilogueOp(f, (Value(i),)) for i, f in enumerate(_SAME_BITS.get((x.dtype, target), ())))
    return emit.node("map", [x], x.shape, epilogue=epilogue, dtype=target, precise=True)


@declare("CAST", versions=9, inputs=1, types=ANY, reasons=_cast_reasons)
def cast(site: Site, emit: Emitter) -> Tensor:
    """Return the output tensor has the target type: old converters did not set the types in the options."""
    x, target = site.input(0), site.output_types[0]
    functions = _conversion(x.dtype, target)
    epilogue = tuple(EpilogueOp(function, (Value(i),)) for i, function in enumerate(functions))
    return emit.node("map", [x], x.shape, epilogue=epilogue, dtype=target)


_HLO_INTEGERS = frozenset(("int16", "int32"))
_HLO_BITS = frozenset(("int8", "int16", "int32"))


def _same_kind(site: Site) -> Iterator[str]:
    """Obstacles of an operator whose inputs have one shape and one element type; StableHLO does not broadcast."""
    kinds = {(t.shape, t.dtype) for t in site.inputs if t is not None}
    if len(kinds) > 1:
        yield "its inputs differ in shape or element type"


declare("STABLEHLO_CBRT", versions=1, inputs=1)(map_inputs)
declare("STABLEHLO_REMAINDER", versions=1, inputs=2, types=FLOATS | _HLO_INTEGERS, reasons=_same_kind)(map_inputs)


_FUNCTIONS = {"ADD": "add", "MULTIPLY": "mul", "MAXIMUM": "maximum", "MINIMUM": "minimum", "AND": "logical_and"}


def _joined(site: Site, emit: Emitter, function: str) -> Tensor:
    return map_node(site, emit, function, [site.input(0), site.input(1)])


for _name, _function in _FUNCTIONS.items():
    _types = frozenset(("bool",)) if _name == "AND" else FLOATS | _HLO_INTEGERS | {"int64"}
    _emit = partial(_joined, function=_function)
    declare(f"STABLEHLO_{_name}", versions=1, inputs=2, types=_types, reasons=_same_kind)(_emit)


@declare("STABLEHLO_SHIFT_LEFT", versions=1, inputs=2, types=_HLO_BITS, reasons=_same_kind)
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


@declare("STABLEHLO_CLAMP", versions=1, inputs=3, types=FLOATS | _HLO_INTEGERS, reasons=_clamp_reasons)
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
