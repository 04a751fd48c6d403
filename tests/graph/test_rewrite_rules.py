"""Rules: they are applied until none fits, to the graph as it is by then, and each application is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.graph.model import IMAGE, Model, functions
from tflgpu.graph.ir import Graph, epilogue_after_first
from tflgpu.graph.rewrite_rules import Built, Match, Rule, op, rewrite
from tflgpu.passes.fuse import fused


def chain(*codes: str) -> Graph:
    m = Model()
    x = m.input(IMAGE)
    for code in codes:
        x = m.add(code, [x])
    return m.graph(x)


def is_abs(match: Match) -> bool:
    return functions(match.node) == ["abs"] and match.node.output not in match.graph.wanted


# The magnitude of what a map gives, as if it were negative nowhere.
ABS = Rule("remove_abs", op("map", op("map", alone=True)), lambda match: match.node.inputs[0], is_abs)
# The last function of a map alone, as that changes no exponential.
LAST = Rule(
    "keep_last",
    op("map", where=lambda _, node: len(node.epilogue) > 1),
    lambda match: [replace(match.node, epilogue=epilogue_after_first(match.node.epilogue))],
)


def _join(match: Match) -> Built:
    return [fused(match["inner"], match.node, 0)]


JOIN = Rule("join", op("map", op("map", name="inner", alone=True)), _join)


def test_a_rule_sees_what_others_have_left() -> None:
    graph, fired = rewrite(chain("EXP", "ABS", "ABS", "ABS", "NEG"), [ABS])
    assert [functions(node) for node in graph.nodes] == [["exp"], ["neg"]]
    assert [(each.rule, each.sources) for each in fired] == [("remove_abs", (n,)) for n in (1, 2, 3)]


def test_what_a_rule_has_built_is_tried_again() -> None:
    graph, fired = rewrite(chain("ABS", "EXP", "NEG"), [LAST, JOIN])
    assert [functions(node) for node in graph.nodes] == [["neg"]]
    assert [each.rule for each in fired] == ["join", "keep_last", "join", "keep_last"]


def test_what_is_read_elsewhere_is_not_alone() -> None:
    m = Model()
    x = m.add("EXP", [m.input(IMAGE)])
    before = m.graph(m.add("NEG", [m.add("ABS", [x])]), m.add("RELU", [x]))
    assert rewrite(before, [ABS]) == (before, ())


def test_rules_that_go_round_in_circles_are_a_fault() -> None:
    with pytest.raises(AssertionError, match="the rule again is applied again and again"):
        rewrite(chain("ABS"), [Rule("again", op(), lambda match: [match.node])])
