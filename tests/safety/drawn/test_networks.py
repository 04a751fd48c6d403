"""Drawn networks, each in another setting, on memory without zeros; hypothesis shrinks what is wrong."""

from __future__ import annotations

from random import Random

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, reject, seed, settings
from hypothesis import strategies as st

import tflgpu
from tests.safety.drawn.device_arrays import Guarded
from tests.safety.drawn.jobs import Job, run
from tests.safety.drawn.judge import Judge, difference
from tests.safety.drawn.networks import network
from tests.safety.drawn.poison import NANS

NETWORKS = 20  # of a chunk


@pytest.mark.quick(when=lambda chunk: chunk < 2)
@pytest.mark.parametrize("chunk", range(6))
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


def test_a_write_after_a_device_array_is_found(device_name: str) -> None:
    drawn = network(Random(3))
    with tflgpu.compile(drawn.case.model, tflgpu.Options(device=device_name, cache="off")) as model:
        guarded = Guarded(model, model.outputs[0], NANS, Random(0))
        guarded.value()
        end = guarded.array.offset + guarded.array.nbytes
        cl.enqueue_fill(model.queue, guarded.array.base_data, np.zeros(1, np.uint8), 1, offset=end)
        with pytest.raises(AssertionError, match="around"):
            guarded.value()


def test_a_wrong_answer_is_found() -> None:
    """The judge asks LiteRT, which agrees with numpy."""
    drawn = next(d for d in (network(Random(n)) for n in range(100)) if d.setting.precision == "fp32")
    with Judge() as judge:
        outputs = run(Job(drawn.case.model, drawn.case.inputs, drawn.setting, "Intel"))[0]
        outputs[0].reshape(-1)[:1] += 1
        assert difference(drawn.case, outputs, "fp32") is not None
        assert not judge.litert_differs(drawn.case)
