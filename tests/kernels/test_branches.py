"""Small models are planned and rendered for each kind of device, for branches that no runtime here takes."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import accumulate

import pytest

from tests.support.fixed_cases import fixed_cases
from tests.support.planning import plan_of
from tests.support.targets import CPU, GPU, H200, H200_LAUNCHES
from tflgpu.codegen.functions import Body, body_of
from tflgpu.codegen.render import render
from tflgpu.target import Target


@pytest.mark.parametrize("storage", ["float", "half"])
@pytest.mark.parametrize("target", [CPU, GPU, H200, H200_LAUNCHES], ids=["cpu", "gpu", "h200", "h200 launches"])
def test_each_small_model_is_rendered(target: Target, storage: str) -> None:
    for case in fixed_cases().values():
        plan = plan_of(case.model, replace(target, storage=storage))
        assert len(render(plan).names) == len(plan.kernels)


# Text before a number, from the begin of its line on, after which C wants a constant.
BEFORE_CONSTANTS = re.compile(
    r"\s*#|.*\b(?:u?char|short|u?int|u?long|float|half|double)\d* \w+\[[^]]*$|.*\bcase |.*\"[^\"]*$"
)


def is_in_head(line: str) -> bool:
    """Tell whether a line's text ends within the head of a loop."""
    _, loop, head = line.rpartition("for ")
    depths = accumulate((c == "(") - (c == ")") for c in head)
    return bool(loop) and all(depth > 0 for depth in depths)


@pytest.mark.parametrize("target", [CPU, GPU, H200], ids=["cpu", "gpu", "h200"])
def test_numbers_that_functions_may_take_stand_where_variables_may(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no part of a name, and on GPUs in no head of a loop without being said to be there."""
    bodies = list[Body]()

    def noted(rendered: str, *, takes_numbers: bool = True) -> Body:
        bodies.append(body_of(rendered, takes_numbers=takes_numbers))
        return bodies[-1]

    monkeypatch.setattr("tflgpu.codegen.render.body_of", noted)
    for case in fixed_cases().values():
        render(plan_of(case.model, target))
    wrong = set[str]()
    for body in bodies:
        text = body.pieces[0]
        for number, is_turn, piece in zip(body.numbers, body.are_turns, body.pieces[1:], strict=True):
            line = text.rpartition("\n")[2]
            alone = not re.search(r"[\w.]$", line) and not re.match(r"[\w.]", piece)
            in_head = target.family == "gpu" and is_in_head(line) and not is_turn
            if not alone or in_head or BEFORE_CONSTANTS.match(line):
                wrong.add(f"{line}{{{number}}}{piece[:20]}")
            text = line + number + piece
    assert wrong == set()
