"""Elements of small tensors of integers, as far as a subgraph tells them without its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tflgpu.model.model import Operator, Subgraph

# Elements. Counters are scalars, and sizes and starts have one element for each axis.
MAX_ELEMENTS = 8


class Affine(NamedTuple):
    """``offset``, and the only element of tensor ``base`` if there is one."""

    base: int | None
    offset: int


Elements = tuple[Affine, ...]  # in row-major order


def affine_elements(subgraph: Subgraph) -> Mapping[int, Elements]:
    """By tensor. Where nothing is known of a tensor of one element, that element is itself the base."""
    found: dict[int, Elements] = {}
    for tensor in subgraph.tensors:
        if tensor.dtype not in ("int32", "int64"):
            continue
        if tensor.data is not None and tensor.data.dtype.kind == "i":
            if tensor.data.size <= MAX_ELEMENTS:
                found[tensor.index] = tuple(Affine(None, int(v)) for v in tensor.data.reshape(-1))
        elif tensor.signature in ((), (1,)):
            found[tensor.index] = (Affine(tensor.index, 0),)
    for operator in subgraph.operators:
        inputs = [found.get(t) for t in operator.inputs]
        if len(operator.outputs) == 1 and operator.outputs[0] >= 0:
            result = _computed(operator, inputs, len(subgraph.tensors[operator.outputs[0]].shape))
            if result is not None and len(result) <= MAX_ELEMENTS:
                found[operator.outputs[0]] = result
    return found


def _computed(operator: Operator, inputs: Sequence[Elements | None], rank: int) -> Elements | None:
    known = [elements for elements in inputs if elements is not None]
    if operator.options.get("fused_activation_function"):
        return None
    match operator.code:
        case "RESHAPE" | "EXPAND_DIMS" | "SQUEEZE":
            return inputs[0] if inputs else None
        case "CONCATENATION" | "PACK" if rank == 1 and len(known) == len(inputs):
            return tuple(element for elements in known for element in elements)
        case "ADD" | "SUB" if len(known) == len(inputs) == 2 and len(known[0]) == len(known[1]):
            sums = [_sum(a, b, 1 if operator.code == "ADD" else -1) for a, b in zip(*known, strict=True)]
            return tuple(s for s in sums if s is not None) if None not in sums else None
    return None


def _sum(a: Affine, b: Affine, sign: int) -> Affine | None:
    """Return ``a + sign * b``."""
    if b.base is None:
        return Affine(a.base, a.offset + sign * b.offset)
    if a.base is None and sign == 1:
        return Affine(b.base, a.offset + b.offset)
    return None
