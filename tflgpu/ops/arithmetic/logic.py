"""Comparisons, logic, SELECT and CAST: elementwise operators that change element types. Booleans are 0 and 1."""

from __future__ import annotations

from collections.abc import Iterator
from math import frexp

from tflgpu.graph.ir import EpilogueOp, Tensor, Value
from tflgpu.model.quantization import Grid
from tflgpu.ops.arithmetic.elementwise import broadcast_reasons, map_inputs, map_node
from tflgpu.ops.declaration import ANY, FLOATS, NUMBERS, Emitter, Site, declare
from tflgpu.ops.movement.shaping import reshape_node
from tflgpu.target import vector_of

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
