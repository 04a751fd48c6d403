"""A few networks of blocks, and that what judges them can find a fault; ``block_sweep`` runs them by the thousand."""

from __future__ import annotations

import os
from random import Random

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tests.safety.drawn.blocks.block_judge import LIMITS, difference, error, is_ill_conditioned
from tests.safety.drawn.blocks.block_networks import network
from tests.safety.drawn.blocks.graph_values import outputs_of_graph
from tests.safety.drawn.blocks.writer import Drawn, Writer
from tests.safety.drawn.jobs import EXECUTORS, Job, Setting, run
from tests.safety.mutants.attempt import Opinion, Question, ask_litert
from tests.support.planning import graph_of
from tflgpu.options import Precision

NETWORKS = int(os.environ.get("TFLGPU_DRAWN_BLOCKS", "3"))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_networks_of_blocks(precision: Precision, device_name: str) -> None:
    @seed(0)
    @settings(max_examples=NETWORKS)
    @given(st.randoms(use_true_random=False), st.sampled_from(EXECUTORS[:3]))
    def is_right(random: Random, way: tuple[str, str]) -> None:
        drawn = network(random)
        for outputs in run(Job(drawn.model, drawn.inputs, Setting(*way, precision, fallback="forbid"), device_name)):
            assert difference(drawn, outputs, precision) is None, str(drawn)

    is_right()


def test_passes_keep_what_networks_give() -> None:
    """In numpy, of the graphs that the passes for every device make."""
    for number in range(20):
        drawn = network(Random(number))
        outputs = outputs_of_graph(graph_of(drawn.model), drawn.inputs)
        assert difference(drawn, outputs, "fp32") is None, str(drawn)


def test_litert_gives_the_same() -> None:
    """The judge is right about every operator, as LiteRT is in LiteRT's plain kernels and in its reference kernels."""
    for number in range(25):
        drawn = network(Random(number))
        question = Question(drawn.model, [{f"{n}": x for n, x in enumerate(drawn.inputs)}])
        with np.errstate(invalid="ignore"):  # of memory that LiteRT has not written
            opinions = ask_litert(question)
        for opinion in opinions.values():
            assert isinstance(opinion, Opinion), f"{opinion}\n{drawn}"
            assert difference(drawn, [*opinion.outputs[0].values()], "fp32") is None, str(drawn)


def _cancelling(large: float) -> Drawn:
    """``(x + large) - large``."""
    w = Writer(Random(0))
    x = w.op("NEG", [w.input(w.normal(3, 5))], np.negative)
    return w.finish([w.subtract(w.add(x, w.constant(large)), w.constant(large))])


def test_ill_conditioned_networks_are_known() -> None:
    assert not is_ill_conditioned(_cancelling(1.0), "fp16")
    assert is_ill_conditioned(_cancelling(100.0), "fp16")
    assert not is_ill_conditioned(_cancelling(100.0), "fp32")
    assert is_ill_conditioned(_cancelling(1e5), "fp32")


def test_few_networks_are_ill_conditioned() -> None:
    drawn = [network(Random(n)) for n in range(20)]
    assert sum(is_ill_conditioned(d, "fp16") for d in drawn) <= 4
    assert sum(is_ill_conditioned(d, "fp32") for d in drawn) <= 1


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_wrong_element_is_found(precision: Precision) -> None:
    drawn = next(d for d in map(network, map(Random, range(20))) if not is_ill_conditioned(d, precision))
    outputs = [x.copy() for x in drawn.expected["double"]]
    assert difference(drawn, outputs, precision) is None
    outputs[0].reshape(-1)[-1] += 1.5 * LIMITS[precision] * np.abs(outputs[0]).max()
    assert difference(drawn, outputs, precision) is not None
    outputs[0].reshape(-1)[-1] = np.nan
    assert error(outputs[0], drawn.expected["double"][0]) == np.inf
