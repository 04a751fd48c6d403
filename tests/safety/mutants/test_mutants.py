"""Damaged models: a public error or LiteRT's answer, and nothing else.

``python -m tests.safety.mutants.mutate`` makes as many of them as there is time for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import Any

import pytest

from tests.safety.mutants import originals
from tests.safety.mutants.edits import Edit, Patch, Table, edited
from tests.safety.mutants.mutation import Mutant, mutant
from tests.safety.mutants.originals import Original
from tests.safety.mutants.verdict import Court

MUTANTS = 300
A_CASE = 25  # mutants
OPERATOR = "subgraphs[0].operators[0]"


@pytest.fixture(scope="module")
def court() -> Iterator[Court]:
    with Court() as court:
        yield court


@pytest.mark.quick(when=lambda first: first == 0)
@pytest.mark.parametrize("first", range(0, MUTANTS, A_CASE))
def test_mutants(first: int, court: Court) -> None:
    faults = []
    for seed in range(first, first + A_CASE):
        found = mutant(seed, shared=False)
        verdict = court.judge(found)
        if verdict.outcome == "fault":
            faults.append(f"seed {seed}, {found}\n{verdict.cause}\n{verdict.details}")
    assert not faults, "\n\n".join(faults)


@dataclass(frozen=True)
class Found:
    """A fault that a mutant once brought to light. refusal: the words of the error; empty if the answer has to be
    LiteRT's.
    """

    original: Callable[[], Original]
    edits: Mapping[str, Any]
    refusal: str = ""


def network(name: str, number: int) -> Callable[[], Original]:
    """Drawn when it is needed."""
    return partial(originals.network, name, number)


def control_flow(name: str) -> Callable[[], Original]:
    return partial(originals.control_flow, name)


FOUND = {
    "another code of 8 bits": Found(network("neg", 0), {"operatorCodes[0].deprecatedBuiltinCode": 19}),
    "a code of 32 bits alone": Found(network("mul_alike", 0), {"operatorCodes[0].deprecatedBuiltinCode": 0}),
    "no options of SOFTMAX": Found(network("softmax", 1), {f"{OPERATOR}.builtinOptions": None}),
    "foreign options of SOFTMAX": Found(
        network("softmax", 1),
        {f"{OPERATOR}.builtinOptions": Table("LocalResponseNormalizationOptions")},
        "SoftmaxOptions was expected",
    ),
    "no options of ONE_HOT": Found(network("one_hot", 2), {f"{OPERATOR}.builtinOptions": None}),
    "a variable as input": Found(control_flow("boolean_mask"), {"subgraphs[0].tensors[0].isVariable": True}),
    "a variable of no numbers": Found(
        control_flow("counter"), {"subgraphs[0].tensors[1].isVariable": True}, "holds no numbers"
    ),
    "a variable of another shape": Found(control_flow("counter"), {"subgraphs[0].tensors[2].shape": [3, 1]}),
    "a third way to mirror": Found(network("mirror_pad", 0), {f"{OPERATOR}.builtinOptions.mode": 2}, "MIRROR_PAD"),
    "a negative size": Found(network("broadcast_to", 4), {"buffers[1].data": Patch(8, b"\0\0\x80\xff")}, "broadcast"),
    "a condition of two values": Found(control_flow("recurrence"), {"subgraphs[1].outputs": [0, 5]}, "WHILE"),
    "a handle as input": Found(
        control_flow("delay"), {"subgraphs[0].tensors[0].type": 13}, "has element type resource"
    ),
    "texts as indices": Found(
        network("topk_v2", 1), {"subgraphs[0].tensors[3].type": 5}, "is currently not supported by TopK"
    ),
    "an input twice": Found(
        network("add_alike", 0), {"subgraphs[0].inputs": [0, 0, 1]}, "where one tensor comes twice"
    ),
    "no list of inputs": Found(network("neg", 0), {f"{OPERATOR}.inputs": None}, "at least 1"),
    "no new shape": Found(network("reshape", 2), {f"{OPERATOR}.inputs": [0, -1]}, "not given its input 1"),
    "indices of another type": Found(network("arg_max", 0), {"subgraphs[0].tensors[2].type": 7}, "declares int16"),
    "an empty result that is not": Found(control_flow("computed_bounds"), {"subgraphs[0].tensors[12].shape": [0]}),
    "an infinite scale": Found(
        network("quantize", 0), {"subgraphs[0].tensors[1].quantization.scale": [float("inf")]}, "finite numbers"
    ),
    "an output that nothing computes": Found(
        control_flow("mask_and_more"), {"subgraphs[0].outputs": [12, 14, 10, 16, 9]}
    ),
    "another declared shape of a product": Found(
        network("fully_connected", 0), {"subgraphs[0].tensors[2].shape": [5, 3]}
    ),
    "floats that become integers": Found(network("dequantize", 0), {"operatorCodes[0].deprecatedBuiltinCode": 19}),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_mutants_found(name: str, court: Court) -> None:
    found = FOUND[name]
    original, edits = found.original(), tuple(starmap(Edit, found.edits.items()))
    verdict = court.judge(Mutant(original, edits, edited(original.data, edits)))
    assert verdict.outcome == ("refused" if found.refusal else "right"), verdict
    assert found.refusal in verdict.details
