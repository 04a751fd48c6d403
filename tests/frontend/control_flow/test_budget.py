"""Loops within loops and branches within branches multiply: one budget for a model bounds what is inlined of them."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest

import tflgpu
from tests.support.litert import run
from tests.support.models import Builder
from tflgpu.frontend.control_flow import callee
from tflgpu.frontend.lower import lower
from tflgpu.model.reader import read_model
from tflgpu.options import Options

FORBID = Options(fallback="forbid", cache="off")
ONES = np.ones(4, np.float32)


def nested_loops(depth: int, trips: int, *, code: str = "SIN", computed: bool = False, elements: int = 0) -> bytes:
    """Loops that constants limit, each the body of the next one.

    computed: the limit is the result of a MUL. elements: of a constant whose sum the innermost body adds.
    """
    model, inner = Builder(), Builder()
    step = _count(inner), inner.add(code, [inner.input((4,))], (4,))
    if elements:
        total = inner.add("SUM", [inner.constant(np.ones(elements, np.float32)), inner.ints([0])], ())
        step = step[0], inner.add("ADD", [step[1], total], (4,))
    body = model.subgraph(inner, step)
    for level in reversed(range(depth)):
        test, outer = Builder(), Builder() if level else model
        i, limit = test.input((), "int32"), test.ints(trips)
        test.input((4,))
        limit = test.add("MUL", [limit, test.ints(1)], (), "int32") if computed else limit
        condition = model.subgraph(test, [test.add("LESS", [i, limit], (), dtype="bool")])
        counted = [_count(outer)] if level else []
        given, results = [outer.ints(0), outer.input((4,))], [outer.tensor((), "int32"), outer.tensor((4,))]
        outer.op("WHILE", given, results, {"cond_subgraph_index": condition, "body_subgraph_index": body})
        if level:
            body = model.subgraph(outer, [*counted, results[1]])
    return model.finish(results[1:])


def _count(builder: Builder) -> int:
    return builder.add("ADD", [builder.input((), "int32"), builder.ints(1)], (), "int32")


def nested_branches(depth: int, *, code: str = "SIN") -> bytes:
    """Two IFs of a constant behind each other in the branch of the next two; a level is one subgraph."""
    model, inner = Builder(), Builder()
    branch = model.subgraph(inner, [inner.add(code, [inner.input((4,))], (4,))])
    for level in reversed(range(depth)):
        outer = Builder() if level else model
        x, truth = outer.input((4,)), outer.constant(np.array(True))
        for _ in range(2):
            x = outer.add("IF", [truth, x], (4,), then_subgraph_index=branch, else_subgraph_index=branch)
        branch = model.subgraph(outer, [x]) if level else branch
    return model.finish([x])


def nested_initializations(depth: int) -> bytes:
    """A CALL_ONCE of a subgraph with two IFs, whose branches have a CALL_ONCE of the next one."""
    model, inner = Builder(), Builder()
    inner.add("SIN", [inner.constant(ONES)], (4,))
    called = model.subgraph(inner)
    for _ in range(depth):
        caller, outer = Builder(), Builder()
        caller.op("CALL_ONCE", [], [], {"init_subgraph_index": called})
        branch = model.subgraph(caller)
        for _ in range(2):
            decision = outer.constant(np.array(True))
            outer.op("IF", [decision], [], {"then_subgraph_index": branch, "else_subgraph_index": branch})
        called = model.subgraph(outer)
    model.op("CALL_ONCE", [], [], {"init_subgraph_index": called})
    return model.finish([model.add("SIN", [model.input((4,))], (4,))])


def refusal(data: bytes) -> str:
    start = process_time()  # of the processor: the machine may be busy
    with pytest.raises(tflgpu.UnsupportedError) as error:
        tflgpu.compile(data, FORBID)
    assert process_time() - start < 10
    return str(error.value)


def test_loops_whose_product_is_too_large_are_not_inlined() -> None:
    data = nested_loops(8, 10)
    assert "in its body, inlining it takes 33333332 operators or more; the limit for the whole model" in refusal(data)
    assert tflgpu.inspect(data).operators[0].device == "cpu"


def test_branches_whose_product_is_too_large_run_nowhere() -> None:
    """LiteRT, too, would prepare 2 ** 24 branches before it runs any."""
    data = nested_branches(24)
    assert "in the branch that it takes, inlining it takes" in refusal(data)
    with pytest.raises(tflgpu.UnsupportedError, match=r"LiteRT would prepare \d+ operators for the calls in it"):
        tflgpu.compile(data, Options(cache="off"))


@pytest.mark.parametrize("data", [nested_loops(3, 6), nested_loops(2, 9, computed=True), nested_branches(6)])
def test_what_is_within_the_budget_is_inlined(data: bytes) -> None:
    assert lower(read_model(data)).is_whole
    (got,) = tflgpu.compile(data, FORBID).run(ONES).values()
    np.testing.assert_allclose(got, *run(data, ONES).values(), rtol=1e-5)


def test_what_only_lowering_can_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that an operator computes tells nothing before the first iteration."""
    monkeypatch.setattr(callee, "MOST_OPERATORS", 1000)
    assert "inlining it takes" in refusal(nested_loops(6, 12, computed=True))


def test_initializations_within_each_other_are_not_followed() -> None:
    assert "its subgraph 41 has a CALL_ONCE of its own" in refusal(nested_initializations(20))


def test_constants_that_loops_repeat_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callee, "MOST_CONSTANT_BYTES", 1 << 20)
    assert "bytes of constants" in refusal(nested_loops(3, 20, elements=1024))


def test_operators_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first IFs are inlined, and the others run on the CPU."""
    monkeypatch.setattr(callee, "MOST_OPERATORS", 30)
    model, inner = Builder(), Builder()
    x = inner.input((4,))
    for _ in range(10):
        x = inner.add("SIN", [x], (4,))
    branch = model.subgraph(inner, [x])
    x, truth = model.input((4,)), model.constant(np.array(True))
    for _ in range(8):
        x = model.add("IF", [truth, x], (4,), then_subgraph_index=branch, else_subgraph_index=branch)
    data = model.finish([x])
    with pytest.warns(tflgpu.FallbackWarning, match="2 of 8 operators run on the CPU"):
        compiled = tflgpu.compile(data, Options(cache="off"))
    assert [o.device for o in compiled.report.operators] == ["device"] * 6 + ["cpu"] * 2
    (got,) = compiled.run(ONES).values()
    np.testing.assert_allclose(got, *run(data, ONES).values(), rtol=1e-5)
