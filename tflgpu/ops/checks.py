"""Nodes that find what LiteRT refuses at run time and no kernel can report, for ``Numerics(checks=True)``.

Whether any element is at fault is one boolean, which the host reads after the model's outputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Value
from tflgpu.ops.declaration import Array, Check, Emitter, Site


def index_check(emit: Emitter, site: Site, index: int, limits: Array) -> Iterator[Check]:
    """Check the indices in an input: none may be negative or above its limit.

    Args:
        emit: Gets the nodes of the check.
        site: The operator.
        index: The input's number.
        limits: The greatest indices; they broadcast against the input.
    """
    if site.input(index).is_constant:
        return  # judged when the operator was lowered
    of = f"{limits}" if limits.ndim == 0 else f"{limits.tolist()} along the axes"
    tests = EpilogueOp("less", (Value(0), Input(1))), EpilogueOp("greater", (Value(0), Input(2)))
    both = EpilogueOp("logical_or", (Value(1), Value(2)))
    yield from _check(emit, site, index, (0, limits), (*tests, both), f"an index that is not from 0 to {of}")


def zero_check(emit: Emitter, site: Site, index: int) -> Iterator[Check]:
    """Check the divisors in an input: none may be zero.

    Args:
        emit: Gets the nodes of the check.
        site: The operator.
        index: The input's number.
    """
    yield from _check(emit, site, index, (0,), (EpilogueOp("equal", (Value(0), Input(1))),), "a divisor of zero")


def sign_check(emit: Emitter, site: Site, index: int) -> Iterator[Check]:
    """Check the exponents in an input: none may be negative.

    Args:
        emit: Gets the nodes of the check.
        site: The operator.
        index: The input's number.
    """
    yield from _check(emit, site, index, (0,), (EpilogueOp("less", (Value(0), Input(1))),), "a negative exponent")


def _check(
    emit: Emitter,
    site: Site,
    index: int,
    numbers: tuple[int | Array, ...],
    epilogue: tuple[EpilogueOp, ...],
    fault: str,
) -> Iterator[Check]:
    """Which elements of input ``index`` are at fault by ``epilogue``, which reads ``numbers`` beside them."""
    x = site.input(index)
    if x.size == 0:
        return
    wide = x.dtype if x.dtype in ("float32", "int64", "uint32") else "int32"  # as on the device
    inputs = [x, *(emit.constant(np.asarray(n, wide)) for n in numbers)]
    found = emit.node("map", inputs, x.shape, None, epilogue, "bool")
    yield Check(found, f"its input {index} has {fault}")
