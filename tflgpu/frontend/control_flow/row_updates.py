"""The row of a list that a loop's body replaces, which TensorFlow's converter writes as slices and a concatenation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tflgpu.frontend.control_flow.affine import Affine, Elements, affine_elements
from tflgpu.model.model import FileTensor, Operator, Subgraph


def with_row_updates(subgraph: Subgraph) -> Subgraph:
    """Return the same subgraph with a DYNAMIC_UPDATE_SLICE for ``concatenate([x[:i], row, x[i + 1:]])``.

    The sizes of the slices depend on ``i``, which only a run can tell; the size of the result does not.
    """
    elements = affine_elements(subgraph)
    producers = {t: o for o in subgraph.operators for t in o.outputs}
    uses = Counter([*subgraph.outputs, *(t for o in subgraph.operators for t in o.inputs)])
    tensors = list(subgraph.tensors)
    operators: list[Operator] = []
    dropped: set[int] = set()
    for operator in subgraph.operators:
        parts = [producers.get(t) for t in operator.inputs]
        size = _size_before_a_row(operator, parts, elements, subgraph)
        before = parts[0] if parts else None
        if size is None or before is None:
            operators.append(operator)
            continue
        dropped.update(t for t in (operator.inputs[0], operator.inputs[2]) if uses[t] == 1)
        like = tensors[size.outputs[0]]
        zero = FileTensor(len(tensors), "", (), (), like.dtype, np.zeros((), like.dtype))
        if size.code == "CONCATENATION":
            others = sum(len(elements[t]) for t in size.inputs[1:])
            zero = replace(zero, shape=(others,), signature=(others,), data=np.zeros(others, like.dtype))
        start = FileTensor(len(tensors) + 1, "", like.shape, like.signature, like.dtype)
        tensors += [zero, start]
        zeros = (zero.index,) * (len(size.inputs) - 1 if size.code == "PACK" else 1)
        inputs = before.inputs[0], operator.inputs[1], start.index
        operators += [
            replace(size, index=operator.index, inputs=(size.inputs[0], *zeros), outputs=(start.index,)),
            replace(operator, code="DYNAMIC_UPDATE_SLICE", version=1, inputs=inputs, options={}),
        ]
    kept = tuple(o for o in operators if not (o.code == "SLICE" and o.outputs[0] in dropped))
    return replace(subgraph, tensors=tuple(tensors), operators=kept)


def _size_before_a_row(
    operator: Operator, parts: list[Operator | None], elements: Mapping[int, Elements], subgraph: Subgraph
) -> Operator | None:
    """Return what makes the size of the slice before the row, ``[i, -1, ...]``; None if it is no row that is
    replaced."""
    if operator.code != "CONCATENATION" or len(parts) != 3 or operator.options.get("axis") != 0:
        return None
    before, item, after = parts
    if before is None or item is None or after is None or not before.code == after.code == "SLICE":
        return None
    fused = operator.options.get("fused_activation_function")
    if fused or before.inputs[0] != after.inputs[0] or not _is_one_row(item, elements):
        return None
    size = next((o for o in subgraph.operators if before.inputs[2] in o.outputs), None)
    bounds = [elements.get(t, ()) for o in (before, after) for t in o.inputs[1:]]
    if size is None or size.code not in ("CONCATENATION", "PACK") or len({len(b) for b in bounds}) != 1:
        return None
    first, taken, second, rest = bounds
    if len(taken) < 2 or elements.get(size.inputs[0]) != taken[:1]:
        return None
    none, whole = (Affine(None, 0),) * (len(taken) - 1), (Affine(None, -1),) * (len(taken) - 1)
    following = Affine(taken[0].base, taken[0].offset + 1)
    found = (first[0], first[1:], taken[1:], second, rest)
    return size if found == (Affine(None, 0), none, whole, (following, *none), (Affine(None, -1), *whole)) else None


def _is_one_row(item: Operator, elements: Mapping[int, Elements]) -> bool:
    """Whether the first axis of an operator's result has size 1 in every run, whatever the file declares."""
    if item.code not in ("EXPAND_DIMS", "RESHAPE") or len(item.inputs) != 2:
        return False
    chosen = elements.get(item.inputs[1], ())
    return bool(chosen) and chosen[0] == Affine(None, 0 if item.code == "EXPAND_DIMS" else 1)
