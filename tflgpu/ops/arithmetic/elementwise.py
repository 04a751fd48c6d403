"""Elementwise operators: each becomes a ``map`` node with one epilogue op, which can be fused into its producer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Tensor, Value, broadcasts_to
from tflgpu.ops.checks import sign_check, zero_check
from tflgpu.ops.declaration import FLOATS, MANY, Check, Emitter, Site, declare, operands_of

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
