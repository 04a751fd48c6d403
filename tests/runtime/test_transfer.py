"""Pinned memory between the host and a GPU, on devices where it is ordinary memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tflgpu
from tests.support.planning import plan_of
from tflgpu.artifact.executable import Array
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.model.writer import ModelBuilder
from tflgpu.runtime import pinned_memory, pinned_transfer
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session
from tflgpu.runtime.pinned_memory import ArrayPins
from tflgpu.runtime.pinned_transfer import PinnedTransfer
from tflgpu.runtime.transfer import DirectTransfer, Transfer


class PinnedExecutor(LaunchExecutor):
    def _make_transfer(self) -> PinnedTransfer:
        return PinnedTransfer(self.executable, self._buffers, self.session)


def two_outputs() -> bytes:
    """exp(x) and abs(y) of two inputs, with lanes that are padding on the device."""
    builder = ModelBuilder()
    inputs = [builder.input((1, 5, 7, 3)), builder.input((2, 6))]
    outputs = [builder.tensor((1, 5, 7, 3)), builder.tensor((2, 6))]
    for code, x, y in zip(("EXP", "ABS"), inputs, outputs, strict=True):
        builder.op(code, [x], [y])
    return builder.finish(outputs)


@pytest.fixture
def executor(device_name: str) -> PinnedExecutor:
    options = tflgpu.Options(device=device_name, precision="fp32")
    device = choose(device_name)
    plan = plan_of(two_outputs(), device.target(options))
    source, session = render(plan), open_session(device)
    return PinnedExecutor(link(plan, source.names), build(source.text, session)[0], session)


@pytest.fixture
def run(executor: PinnedExecutor) -> Callable[[list[Array]], list[Array]]:
    return executor.run


def arrays(seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(np.float32) for shape in ((1, 5, 7, 3), (2, 6))]


def check(got: list[Array], inputs: list[Array]) -> None:
    np.testing.assert_allclose(got[0], np.exp(inputs[0]), rtol=1e-5)
    np.testing.assert_array_equal(got[1], np.abs(inputs[1]))


def test_inputs_and_outputs_share_a_buffer_each(run: Callable[[list[Array]], list[Array]]) -> None:
    for seed in range(3):
        check(run(arrays(seed)), arrays(seed))


@pytest.mark.usefixtures("lent")
def test_outputs_stay_as_they_are(run: Callable[[list[Array]], list[Array]]) -> None:
    """More are kept than there is pinned memory to lend; each run's outputs are its caller's own."""
    kept = [run(arrays(seed)) for seed in range(pinned_memory.Lender.AT_MOST + 3)]
    for seed, outputs in enumerate(kept):
        check(outputs, arrays(seed))
    first = kept[0][0][0, 0]  # a part of an output keeps all of its memory
    before = first.copy()
    del kept
    for seed in range(10, 20):
        check(run(arrays(seed)), arrays(seed))
    np.testing.assert_array_equal(first, before)


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_pinned_inputs_are_read_where_they_are(which: tuple[int, ...], executor: PinnedExecutor) -> None:
    """Beside others that are not pinned, and after the array was filled again."""
    staging = executor._transfer._inputs
    pinned = [pinned_memory.pinned_array(executor.session, a.shape, "float32") for a in arrays(0)]
    for seed in range(3):
        inputs = arrays(seed)
        for number in which:
            pinned[number][...] = inputs[number]
            inputs[number] = pinned[number]
        for memory in staging.blocks.values():
            memory[:] = 0
        check(executor.run(inputs), inputs)
    written = [np.any(view) for view in executor._transfer._inputs.views]
    assert written == [number not in which for number in range(2)]


def test_parts_of_pinned_arrays_and_other_types_are_copied(executor: PinnedExecutor) -> None:
    wide = pinned_memory.pinned_array(executor.session, (1, 5, 7, 6), "float32")
    wide[...] = np.random.default_rng(0).normal(size=wide.shape)
    inputs = [wide[..., ::2], pinned_memory.pinned_array(executor.session, (2, 6), "float64") - 1.5]
    check(executor.run(inputs), inputs)


@pytest.fixture
def small_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are pinned, too."""
    monkeypatch.setattr(ArrayPins, "WORTHWHILE", 0)


@pytest.fixture(params=[0, 1 << 30], ids=["lent", "copied"])
def lent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are in memory that is lent, or copied."""
    monkeypatch.setattr(pinned_memory.Lender, "WORTHWHILE", request.param)


@pytest.mark.usefixtures("small_pins")
def test_runs_read_what_a_pinned_array_holds_now(executor: PinnedExecutor) -> None:
    inputs = arrays(0)
    for seed in range(8):
        for array, fresh in zip(inputs, arrays(seed), strict=True):
            array[...] = fresh
        for memory in executor._transfer._inputs.blocks.values():
            memory[:] = 0
        check(executor.run(inputs), arrays(seed))
        staged = any(np.any(view) for view in executor._transfer._inputs.views)
        assert staged == (seed + 1 < ArrayPins.SIGHTINGS)


@pytest.mark.usefixtures("small_pins")
def test_arrays_that_take_turns_do_not_mix(executor: PinnedExecutor) -> None:
    kept = [arrays(seed) for seed in range(3)]
    for turn in range(18):
        inputs = kept[turn % 3] if turn % 4 else arrays(100 + turn)
        check(executor.run(inputs), inputs)


@pytest.mark.usefixtures("lent")
def test_each_inference_on_its_way_has_memory_of_its_own(executor: PinnedExecutor) -> None:
    """And gives it back: as many slots are made as inferences were on their way at once."""
    inputs = arrays(0)
    for _ in range(3):
        flights = []
        for seed in range(5):
            for array, fresh in zip(inputs, arrays(seed), strict=True):
                array[...] = fresh
            flights.append(executor.enqueue(inputs, {}))
        for seed, flight in reversed(list(enumerate(flights))):
            check(executor.collect(flight), arrays(seed))
        del flight, flights
    assert len(executor._transfer._slots._spare) <= 5
    check(executor.run(arrays(7)), arrays(7))


@pytest.mark.parametrize(
    ("kind", "shares_memory", "transfer"),
    [("gpu", False, PinnedTransfer), ("gpu", True, DirectTransfer), ("cpu", True, DirectTransfer)],
)
def test_only_gpus_with_memory_of_their_own_get_pinned_memory(
    kind: str, shares_memory: bool, transfer: type[Transfer], executor: PinnedExecutor
) -> None:
    device = executor.session.device
    limits = replace(device.limits, shares_memory=shares_memory)
    executor.session = replace(executor.session, device=replace(device, type=kind, limits=limits))
    assert type(LaunchExecutor._make_transfer(executor)) is transfer


@pytest.mark.parametrize("shape", [(1, 50, 40, 3), (7, 1, 30), (3, 2, 1), (5,), ()])
@pytest.mark.parametrize("element", ["float32", "float64", "uint8"])
def test_large_arrays_are_copied_whole(shape: tuple[int, ...], element: str) -> None:
    """By threads, whichever axis is long enough; also a transposed array."""
    source = np.random.default_rng(0).uniform(0, 9, shape[::-1]).astype(element).T
    target = np.zeros(shape, np.float32)
    pinned_transfer.fill(target, source, each=16, threads=8)
    np.testing.assert_array_equal(target, source.astype(np.float32))


def test_an_empty_array_is_pinned_like_others(device_name: str) -> None:
    pinned = pinned_memory.pinned_array(open_session(choose(device_name)), (0, 3), "float32")
    assert pinned.shape == (0, 3) and pinned.dtype == np.float32 and pinned_memory.is_mapped(pinned)
