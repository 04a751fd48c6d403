"""The tool that plants small faults: ``python -m scripts.mutate``."""

from __future__ import annotations

import ast

from scripts.mutate import python_rules, template_rules
from scripts.mutate.mutant import ROOT, Mutant, known_equivalents

FILES = ("tflgpu/plan/placement.py", "templates/executor/claiming.cl.j2", "templates/executor/grid_barrier.cl.j2")


def mutants_of(file: str) -> list[Mutant]:
    rules = python_rules if file.endswith(".py") else template_rules
    return [*rules.mutants_of(file, (ROOT / file).read_text())]


def test_each_mutant_is_another_program() -> None:
    for file in FILES:
        source, found = (ROOT / file).read_text(), mutants_of(file)
        assert {"number", "sign"} <= {mutant.rule for mutant in found} or file.endswith(".j2")
        texts = {mutant.applied(source) for mutant in found}
        assert source not in texts and len(texts) > 0.9 * len(found) > 9
        if file.endswith(".py"):
            assert all(ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)) for text in texts)
    assert {"barrier", "flag"} <= {mutant.rule for mutant in mutants_of(FILES[2])}
    assert "memory order" in {mutant.rule for mutant in mutants_of(FILES[1])}


def test_each_mutant_that_changes_no_behaviour_can_be_planted() -> None:
    """A row whose line has changed is to be judged anew."""
    for file, before, after in known_equivalents():
        source = (ROOT / file).read_text()
        assert (before, after) in {mutant.changed(source) for mutant in mutants_of(file)}, (file, after)
