"""Several cases as one model, of which each is a part of its own: one program to compile, where that takes the time."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import flatbuffers
import pytest

import tflgpu
from tests.ops.case import Case
from tests.support.running import options_of, run_checked

schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="LiteRT is missing")

# Fields of tables that refer to others by number.
TENSORS = ("inputs", "outputs", "intermediates")


def can_be_joined(case: Case) -> bool:
    """Whether no operator of it calls another subgraph."""
    return schema.Model.GetRootAs(case.model).SubgraphsLength() == 1


def joined(models: Iterable[bytes]) -> bytes:
    """A model with the inputs, the operators and the outputs of all, one after another."""
    whole, *others = map(schema.ModelT.InitFromPackedBuf, models)
    graph = whole.subgraphs[0]
    for number, tensor in enumerate(graph.tensors):
        tensor.name = f"0/{number}"
    for place, other in enumerate(others, 1):
        added, tensors, buffers, codes = (
            other.subgraphs[0],
            len(graph.tensors),
            len(whole.buffers),
            len(whole.operatorCodes),
        )
        for number, tensor in enumerate(added.tensors):
            tensor.buffer += buffers
            tensor.name = f"{place}/{number}"
        for each in added.operators or ():
            each.opcodeIndex += codes
        for table in (added, *(added.operators or ())):
            for field in TENSORS:
                numbers = getattr(table, field, None)
                if numbers is not None:
                    setattr(table, field, [number + tensors if number >= 0 else number for number in numbers])
        whole.buffers += other.buffers
        whole.operatorCodes += other.operatorCodes
        graph.tensors += added.tensors
        graph.operators = [*(graph.operators or ()), *(added.operators or ())]
        graph.inputs, graph.outputs = ([*getattr(graph, f), *getattr(added, f)] for f in TENSORS[:2])
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(whole.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def run_together(cases: Sequence[Case], **options: Any) -> None:
    """Do what :func:`run_checked` does with each case, in one model. Where that fails, each runs alone."""
    parts = [case for case in cases if can_be_joined(case)]
    for case in cases:
        if not can_be_joined(case):
            run_checked(case, **options)
    try:
        _check_joined(parts, **options)
    except (AssertionError, tflgpu.TflgpuError) as error:
        for case in parts:
            run_checked(case, **options)
        error.add_note(f"none of {len(parts)} cases fails alone")
        raise


def _check_joined(cases: Sequence[Case], **options: Any) -> None:
    if not cases:
        return
    chosen = options_of(**options)
    with tflgpu.compile(joined(case.model for case in cases), chosen) as compiled:
        results = iter(compiled.run(reduce(operator.iadd, (case.inputs for case in cases), [])).values())
    for case in cases:
        case.check([next(results) for _ in case.expected], chosen.precision)
