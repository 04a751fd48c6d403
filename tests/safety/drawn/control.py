"""Steps of control flow: loops and branches, decided by constants or by an input."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from flatbuffers import flexbuffers

from tests.ops.case import Tensor
from tests.ops.reference import Array
from tests.safety.drawn.drawing import Drawing, Shape
from tests.safety.drawn.movements import Step
from tests.support.models import Builder

FUNCTIONS: dict[str, Callable[[Array], Array]] = {"TANH": np.tanh, "NEG": np.negative, "ABS": np.abs, "SIN": np.sin}


def branch(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 4)
    is_true, is_constant = d.chance(0.5), d.chance(0.5)
    condition = (d.net.constant if is_constant else d.net.input)(np.array([is_true]))
    names = d.one_of([*FUNCTIONS]), d.one_of([*FUNCTIONS])
    bodies = [_body(d, x.shape, name) for name in names]
    value = FUNCTIONS[names[0] if is_true else names[1]](x.value)
    options = {"then_subgraph_index": bodies[0], "else_subgraph_index": bodies[1]}
    yield from d.net.ops("IF", [condition, x], [value], options)


def _body(d: Drawing, shape: Shape, name: str) -> int:
    body = Builder()
    x = body.input(shape)
    y = body.add(name, [x], shape)
    return d.net.subgraph(body, [y])


def loop(d: Drawing) -> Iterable[Tensor]:
    """``x = f(x) + step`` a few times, beside a counter that is a constant or an input."""
    x, name, times = d.operand(1, 4), d.one_of([*FUNCTIONS]), d.random.randint(0, 4)
    count = (d.net.constant if d.chance(0.5) else d.net.input)(np.zeros((), np.int32))
    step = d.net.normal(x.shape[-1:])
    value = x.value
    for _ in range(times):
        value = FUNCTIONS[name](value) + step
    options = {
        "cond_subgraph_index": _is_below(d, x.shape, times),
        "body_subgraph_index": _turn(d, x.shape, name, step),
    }
    _, result = d.net.ops("WHILE", [count, x], [np.array(times, np.int32), value], options)
    yield result


def _is_below(d: Drawing, shape: Shape, times: int) -> int:
    condition = Builder()
    count, _ = condition.input((), "int32"), condition.input(shape)
    less = condition.add("LESS", [count, condition.ints(times)], (), "bool")
    return d.net.subgraph(condition, [less])


def _turn(d: Drawing, shape: Shape, name: str, step: Array) -> int:
    body = Builder()
    count, x = body.input((), "int32"), body.input(shape)
    more = body.add("ADD", [count, body.ints(1)], (), "int32")
    y = body.add(name, [x], shape)
    z = body.add("ADD", [y, body.constant(step)], shape)
    return d.net.subgraph(body, [more, z])


def composite(d: Drawing) -> Iterable[Tensor]:
    """``f(x) * w`` and ``x``, by a decomposition that is called once or twice, and that may call another one."""
    x, (name, other) = d.operand(1, 4), (d.one_of([*FUNCTIONS]), d.one_of([*FUNCTIONS]))
    is_nested, times = d.chance(0.4), d.random.randint(1, 2)
    w = d.factors(x.shape[-1:])
    inner = _decomposition(d, x.shape, other) if is_nested else None
    number = _decomposition(d, x.shape, name, inner)
    for _ in range(times):
        value = FUNCTIONS[name](x.value) * w.value
        value = FUNCTIONS[other](value) * w.value if is_nested else value
        y, same = d.net.ops("STABLEHLO_COMPOSITE", [x, w], [value, x.value], decomposed_by(number))
        yield from (y, same)
        x = y


def decomposed_by(subgraph: int) -> dict[str, object]:
    attributes = list(flexbuffers.Dumps({}))
    return {"name": "odml.drawn", "decomposition_subgraph_index": subgraph, "composite_attributes": attributes}


def _decomposition(d: Drawing, shape: Shape, name: str, called: int | None = None) -> int:
    body = Builder()
    x, w = body.input(shape), body.input(shape[-1:])
    y = body.add("MUL", [body.add(name, [x], shape), w], shape)
    if called is not None:
        results = [body.tensor(shape), body.tensor(shape)]
        body.op("STABLEHLO_COMPOSITE", [y, w], results, decomposed_by(called))
        y = results[0]
    return d.net.subgraph(body, [y, x])


CONTROL: tuple[Step, ...] = (branch, composite, loop)
