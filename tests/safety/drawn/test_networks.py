"""Drawn networks, each in another setting, on memory without zeros; hypothesis shrinks what is wrong."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, reject, seed, settings
from hypothesis import strategies as st

import tflgpu
from tests.safety.drawn.judge import Job, Judge, difference, run
from tests.safety.drawn.networks import network

NETWORKS = 20  # of a chunk


@pytest.mark.quick(when=lambda chunk: chunk < 2)
@pytest.mark.parametrize("chunk", range(10))
def test_networks(chunk: int) -> None:
    with Judge() as judge:

        @seed(chunk)
        @settings(max_examples=NETWORKS)
        @given(st.randoms(use_true_random=False))
        def is_right(random: Random) -> None:
            drawn = network(random)
            case, setting = drawn.case, drawn.setting
            try:
                answers = run(Job(case.model, case.inputs, setting, "Intel"))
            except tflgpu.UnsupportedError:
                assert setting.cpu_ops  # LiteRT refuses to run one alone
                reject()
            for outputs in answers:
                wrong = difference(case, outputs, setting.precision)
                assert wrong is None or judge.litert_differs(case), f"{drawn}\n{wrong}"

        is_right()


def test_a_network_that_crashed() -> None:
    """Where the CPU has AVX-512; the quirk "aligned halves" tells why."""
    drawn = network(Random(301963))
    with Judge("Portable") as judge:
        assert judge.judge(drawn).outcome == "right"


def test_a_wrong_answer_is_found() -> None:
    """The judge asks LiteRT, which agrees with numpy."""
    drawn = next(d for d in (network(Random(n)) for n in range(100)) if d.setting.precision == "fp32")
    with Judge() as judge:
        outputs = run(Job(drawn.case.model, drawn.case.inputs, drawn.setting, "Intel"))[0]
        outputs[0].reshape(-1)[:1] += 1
        assert difference(drawn.case, outputs, "fp32") is not None
        assert not judge.litert_differs(drawn.case)
