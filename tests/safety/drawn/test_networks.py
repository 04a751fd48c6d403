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
from tests.safety.drawn.networks import Network, chains_of, integer_network, network
from tests.safety.drawn.poison import NANS
from tests.support.models import Builder

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


@pytest.mark.quick(when=lambda seed: seed < 2)
@pytest.mark.parametrize("seed", range(6))
def test_chains_of_integers(seed: int) -> None:
    """Through all passes, beside LiteRT's reference kernels; where something is wrong, chain by chain."""
    with Judge() as judge:

        def wrong(drawn: Network) -> str | None:
            case = judge.as_litert(drawn.case)
            answers = run(Job(case.model, case.inputs, drawn.setting, "Intel"))
            found = (difference(case, outputs, "fp32") for outputs in answers)
            return next((f"{drawn}\n{text}" for text in found if text), None)

        drawn = integer_network(Random(seed), 25)
        if text := wrong(drawn):
            pytest.fail(next(filter(None, map(wrong, chains_of(drawn))), text))


# A number, perhaps another one, and what each operator makes of them: its type does not hold it.
EXCEEDING = (
    ("ADD", "int16", 32767, 1, 32768),
    ("MUL", "int16", 300, 300, 90_000),
    ("FLOOR_DIV", "int8", -128, -1, 128),
    ("NEG", "int16", -32768, None, 32768),
    ("ABS", "int16", -32768, None, 32768),
    ("REDUCE_PROD", "int8", 16, None, 256),
    ("REDUCE_PROD", "uint8", 15, None, 225),
)


def test_integers_wrap_around_before_other_functions_read_them(device_name: str) -> None:
    """Functions of one kernel compute with more bits than the type has."""
    builder, outputs = Builder(), list[int]()
    for code, dtype, _, other, _ in EXCEEDING:
        operands = [builder.input((2, 2), dtype)]
        operands += [] if other is None else [builder.constant(np.array(other, dtype))]
        operands += [builder.ints([0])] if code == "REDUCE_PROD" else []
        result = builder.add(code, operands, (2,) if code == "REDUCE_PROD" else (2, 2), dtype)
        outputs.append(builder.add("CAST", [result], None, "int64"))
    options = tflgpu.Options(device=device_name, cache="off", fallback="forbid")
    with tflgpu.compile(builder.finish(outputs), options) as model:
        found = model.run([np.full((2, 2), value, dtype) for _, dtype, value, _, _ in EXCEEDING])
        for (code, dtype, *_, exact), result in zip(EXCEEDING, found.values(), strict=True):
            assert set(result.flat) == {int(np.array(exact).astype(dtype))}, code


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
