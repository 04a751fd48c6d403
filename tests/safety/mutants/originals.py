"""Sound models to damage, small enough to compile in a fraction of a second."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.conformance import cases
from tests.frontend import dynamic_models, stateful_models
from tests.frontend.control_flow import loop_models
from tests.ops.case import Case
from tests.ops.table import ROWS

NETWORKS_OF_A_ROW = 6

CONTROL_FLOW = {
    **stateful_models.MODELS,
    **{name: partial(make, 1) for name, (make, _) in dynamic_models.MODELS.items()},
    "recurrence": partial(loop_models.sequence_model, loop_models.gru_cell),
    "unrolled": partial(loop_models.unrolled_model, loop_models.lstm_cell, 2),
}

REAL_MODELS = ("hey_jarvis", "keras_lstm_mnist_ptq", "kws_ref_model_float32", "trained_lstm")


@dataclass(frozen=True)
class Original:
    """inputs: sensible ones for the sound model; none if any numbers do. litert_differs: as in the op table."""

    name: str
    data: bytes = field(repr=False)
    inputs: tuple[cases.Array, ...] = field(default=(), repr=False)
    litert_differs: str = ""


def original(random: Random, *, shared: bool) -> Original:
    """A network of the op table more often than one of control flow and state.

    shared: also conformance cases, which are of all types, and small real models.
    """
    kind = random.random()
    if shared and kind < 0.05:
        return real_model(random.choice(REAL_MODELS))
    if shared and kind < 0.3:
        return _conformance_case(random.choice(cases.index()))
    if kind > 0.85:
        return control_flow(random.choice(sorted(CONTROL_FLOW)))
    row = random.choice(ROWS)
    return network(row.name, random.randrange(NETWORKS_OF_A_ROW))


@cache
def control_flow(name: str) -> Original:
    return Original(name, CONTROL_FLOW[name]())


@cache
def real_model(name: str) -> Original:
    return Original(name, Path(cases.FOLDER.parent, "models", f"{name}.tflite").read_bytes())


def network(name: str, number: int) -> Original:
    """One of the networks that a row of the op table draws; the first is the simplest."""
    return _networks(name)[number]


def simpler(original: Original) -> list[Original]:
    """Networks of the same row, the simplest first; none for other models."""
    name, _, number = original.name.rpartition(" ")
    return _networks(name)[: int(number)] if name else []


@cache
def _networks(name: str) -> list[Original]:
    (row,) = (row for row in ROWS if row.name == name)
    drawn: list[Original] = []

    @seed(0)
    @settings(
        max_examples=NETWORKS_OF_A_ROW, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(st.booleans().flatmap(row.case))
    def draw(case: Case) -> None:
        drawn.append(Original(f"{name} {len(drawn)}", case.model, tuple(case.inputs), case.litert_differs))

    draw()
    return (drawn * NETWORKS_OF_A_ROW)[:NETWORKS_OF_A_ROW]  # a row with few choices may have fewer


def _conformance_case(entry: cases.Entry) -> Original:
    case = cases.load(entry)
    return Original(str(entry), case.model, case.inputs)
