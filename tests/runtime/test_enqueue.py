"""Inferences that are enqueued: the bits of those that are run, in the order of the calls, errors where they belong."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, islice

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.support.arrays import assert_equal
from tests.support.models import Builder
from tflgpu.runtime.executors.in_flight import AT_MOST
from tflgpu.runtime.executors.persistent_executor import SPIN_LIMIT, PersistentExecutor
from tflgpu.runtime.runner import AHEAD

Array = NDArray[np.float32]

SHAPE = (1, 5, 7, 3)

CONFIGURATIONS = {
    "launch": tflgpu.Options(execution=tflgpu.Execution(kernels="cpu", executor="launch")),
    "claiming": tflgpu.Options(execution=tflgpu.Execution(kernels="cpu", executor="claiming")),
    "persistent": tflgpu.Options(execution=tflgpu.Execution(kernels="gpu", executor="persistent")),
    "partly on the cpu": tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=[1])),
}


def network() -> bytes:
    """y = softmax(x), z = exp(y) summed over the image: an image and a row with lanes that are padding."""
    builder = Builder()
    x = builder.input(SHAPE, name="x")
    axes = builder.ints([1, 2])
    y = builder.add("SOFTMAX", [x], SHAPE, name="y", beta=1.0)
    powers = builder.add("EXP", [y], SHAPE)
    z = builder.add("SUM", [powers, axes], (1, 3), name="z", keep_dims=False)
    return builder.finish([y, z])


def image(seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def images() -> Iterator[Array]:
    """One array, filled again and again."""
    filled = np.empty(SHAPE, np.float32)
    for seed in count():
        filled[...] = image(seed)
        yield filled


def compiled(device_name: str, configuration: str) -> tflgpu.CompiledModel:
    options = replace(CONFIGURATIONS[configuration], device=device_name, precision="fp32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tflgpu.FallbackWarning)
        return tflgpu.compile(network(), options)


@pytest.fixture(params=CONFIGURATIONS)
def model(device_name: str, request: pytest.FixtureRequest) -> tflgpu.CompiledModel:
    return compiled(device_name, request.param)


def executor_of(model: tflgpu.CompiledModel) -> PersistentExecutor:
    (instance,) = model._runner.instances.values()
    (executor,) = instance._engines
    assert isinstance(executor, PersistentExecutor)
    return executor


def fresh_outputs(model: tflgpu.CompiledModel, names: Iterable[str] = ("y", "z")) -> dict[str, cl_array.Array]:
    return {i.name: cl_array.zeros(model.queue, i.shape, np.float32) for i in model.outputs if i.name in names}


def test_many_on_their_way_give_the_bits_of_run(model: tflgpu.CompiledModel) -> None:
    """From the host and from the device, to the host and to the device, more than may be on their way at once."""
    number = 2 * AT_MOST + 3
    expected = [model.run(image(seed)) for seed in range(number)]
    targets, submissions = [], []
    for seed, filled in zip(range(number), images(), strict=False):
        given = cl_array.to_device(model.queue, filled) if seed % 2 else filled
        targets.append(fresh_outputs(model, ("y", "z")[: seed % 3]))
        submissions.append(model.enqueue(given, targets[-1]))
    for submission, target, wanted in reversed(list(zip(submissions, targets, expected, strict=True))):
        found = submission.wait()
        assert submission.done and submission.wait() is found
        assert found.keys() == wanted.keys() - target.keys()
        assert_equal(found | {name: array.get() for name, array in target.items()}, wanted)


def test_runs_and_profiles_may_come_between(model: tflgpu.CompiledModel) -> None:
    expected = [model.run(image(seed)) for seed in range(4)]
    first, second = model.enqueue(image(0)), model.enqueue(cl_array.to_device(model.queue, image(1)))
    assert_equal(model.run(image(2)), expected[2])
    third = model.enqueue(image(3))
    if model.executor != "persistent":  # it has no clock here
        model.profile(image(2), 1)
    model.reset_state()
    for submission, seed in ((third, 3), (first, 0), (second, 1)):
        assert_equal(submission.wait(), expected[seed])


def test_arrays_live_until_the_end(model: tflgpu.CompiledModel) -> None:
    expected = [model.run(image(seed)) for seed in range(AT_MOST)]
    kept = [weakref.ref(model.enqueue(cl_array.to_device(model.queue, image(0)), fresh_outputs(model)))]
    submissions = [model.enqueue(cl_array.to_device(model.queue, image(seed))) for seed in range(AT_MOST)]
    gc.collect()
    assert kept[0]() is None, "nobody waits for it"
    model.close()
    for submission, wanted in zip(submissions, expected, strict=True):
        assert_equal(submission.wait(), wanted)
    with pytest.raises(ValueError, match="closed"):
        model.enqueue(image(0))


def test_threads_share_the_queue(model: tflgpu.CompiledModel) -> None:
    expected = [model.run(image(seed)) for seed in range(4)]

    def work(seed: int) -> None:
        waiting = deque[tflgpu.Submission]()
        for _ in range(12):
            waiting.append(model.enqueue(image(seed)))
            if len(waiting) > seed:
                assert_equal(waiting.popleft().wait(), expected[seed])
            assert_equal(model.run(image(seed)), expected[seed])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_other_queues_can_wait_for_the_event(model: tflgpu.CompiledModel) -> None:
    target = fresh_outputs(model)
    submission = model.enqueue(image(0), target)
    found = np.empty((1, 3), np.float32)
    model.queue.flush()
    cl.enqueue_copy(cl.CommandQueue(model.queue.context), found, target["z"].base_data, wait_for=[submission.event])
    np.testing.assert_array_equal(found, model.run(image(0))["z"])


def test_what_does_not_fit_is_refused_at_once(model: tflgpu.CompiledModel) -> None:
    with pytest.raises(ValueError, match=r"shape \[2\]; \[1, 5, 7, 3\] was expected"):
        model.enqueue(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"outputs named \['w'\] were given"):
        model.enqueue(image(0), {"w": cl_array.zeros(model.queue, (1, 3), np.float32)})
    with pytest.raises(TypeError, match="output 'z' is a list; an array was expected"):
        model.enqueue(image(0), {"z": [[0.0, 0.0, 0.0]]})  # type: ignore[dict-item]
    assert_equal(model.enqueue(image(0)).wait(), model.run(image(0)))


def test_models_on_one_queue_pass_arrays_on_without_a_wait(device_name: str) -> None:
    options = tflgpu.Options(device=device_name, precision="fp32")
    first = tflgpu.compile(network(), options)
    second = tflgpu.compile(network(), options, queue=first.queue)
    expected = [second.run(first.run(image(seed))["y"]) for seed in range(4)]
    found = []
    for seed in range(4):
        between = fresh_outputs(first, ["y"])
        first.enqueue(image(seed), between)
        found.append(second.enqueue(between["y"]))
    for submission, wanted in zip(found, expected, strict=True):
        assert_equal(submission.wait(), wanted)


def test_variables_change_in_the_order_of_the_calls(device_name: str) -> None:
    """sum = sum / 2 + x, which depends on the order."""
    builder, initial, shape = Builder(), Builder(), (1, 4)

    def handle(of: Builder) -> int:
        return of.add("VAR_HANDLE", [], (), "resource", container="", shared_name="sum")

    x, half = builder.input(shape, name="x"), builder.constant(np.full(1, 0.5, np.float32))
    initial.op("ASSIGN_VARIABLE", [handle(initial), initial.constant(np.zeros(shape, np.float32))], [])
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(initial)})
    old = builder.add("READ_VARIABLE", [handle(builder)], shape)
    halved = builder.add("MUL", [old, half], shape)
    new = builder.add("ADD", [halved, x], shape, name="y")
    builder.op("ASSIGN_VARIABLE", [handle(builder), new], [])
    for choice in ("launch", "persistent"):
        options = tflgpu.Options(
            device=device_name, precision="fp32", execution=tflgpu.Execution(kernels="gpu", executor=choice)
        )
        model = tflgpu.compile(builder.finish([new]), options)
        submissions = [model.enqueue(np.full(shape, i, np.float32)) for i in range(12)]
        wanted = 0.0
        for i, submission in enumerate(submissions):
            wanted = wanted / 2 + i
            np.testing.assert_array_equal(submission.wait()["y"], np.full(shape, wanted, np.float32))


def test_a_failed_barrier_is_reported_by_all_on_their_way(device_name: str) -> None:
    model = compiled(device_name, "persistent")
    expected, executor = model.run(image(0)), executor_of(model)
    good = model.enqueue(image(0))
    good.event.wait()
    assert_equal(good.wait(), expected)
    executor.set_spin_limit(0)
    gate = cl.UserEvent(model.queue.context)
    cl.enqueue_marker(model.queue, wait_for=[gate])
    bad = [model.enqueue(cl_array.to_device(cl.CommandQueue(model.queue.context), image(0))) for _ in range(3)]
    assert not any(submission.done for submission in bad)
    gate.set_status(cl.command_execution_status.COMPLETE)
    for submission in (bad[1], bad[0], bad[2], bad[2]):
        with pytest.raises(tflgpu.DeviceError, match="do not run at the same time"):
            submission.wait()
    executor.set_spin_limit(SPIN_LIMIT)
    assert_equal(model.enqueue(image(0)).wait(), expected)
    assert_equal(model.run(image(0)), expected)


def test_a_failed_barrier_is_reported_by_the_next_call(device_name: str) -> None:
    """Where nobody waits for the inference."""
    model = compiled(device_name, "persistent")
    expected, executor = model.run(image(0)), executor_of(model)
    executor.set_spin_limit(0)
    model.enqueue(image(0)).event.wait()
    with pytest.raises(tflgpu.DeviceError, match="do not run at the same time"):
        model.enqueue(image(0))
    executor.set_spin_limit(SPIN_LIMIT)
    assert_equal(model.enqueue(image(0)).wait(), expected)


def test_nothing_is_read_to_know_that_a_fast_inference_is_right(
    device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = compiled(device_name, "persistent")
    expected, executor = model.run(image(0)), executor_of(model)
    executor.set_spin_limit((1 << 32) - 1)  # which takes minutes
    monkeypatch.setattr(executor, "_read_failures", lambda: pytest.fail("something was read"))
    for _ in range(3):
        assert_equal(model.run(image(0)), expected)
        assert_equal(model.enqueue(image(0)).wait(), expected)


@pytest.mark.parametrize("ahead", [1, AHEAD])
def test_run_many_gives_the_bits_of_run_in_order(ahead: int, model: tflgpu.CompiledModel) -> None:
    model._runner.ahead = ahead
    results = model.run_many(islice(images(), 3 * AT_MOST))
    for seed, found in enumerate(results):
        assert_equal(found, model.run(image(seed)))
    assert seed == 3 * AT_MOST - 1
    assert list(model.run_many([])) == []


@pytest.mark.parametrize("ahead", [1, AHEAD])
def test_run_many_reads_no_more_than_it_needs(ahead: int, device_name: str) -> None:
    model = compiled(device_name, "launch")
    model._runner.ahead = ahead
    read: list[int] = []

    def given() -> Iterator[Array]:
        for seed in count():
            read.append(seed)
            yield image(seed)

    results = model.run_many(given())
    assert not read
    for number in range(5):
        next(results)
        assert len(read) == number + ahead
    results.close()
    assert len(read) == 4 + ahead
    assert_equal(model.run(image(0)), model.enqueue(image(0)).wait())


@pytest.mark.parametrize("ahead", [1, AHEAD])
@pytest.mark.parametrize("wrong", range(4))
def test_errors_of_run_many_come_in_their_place(wrong: int, ahead: int, device_name: str) -> None:
    model = compiled(device_name, "launch")
    model._runner.ahead = ahead

    def broken() -> Iterator[Array]:
        yield from (image(seed) for seed in range(wrong))
        raise LookupError("no more images")

    for given, error in (
        ([*map(image, range(wrong)), np.zeros(2, np.float32), image(0)], ValueError),
        (broken(), LookupError),
    ):
        results = model.run_many(given)
        for seed in range(wrong):
            assert_equal(next(results), model.run(image(seed)))
        with pytest.raises(error):
            next(results)
        with pytest.raises(StopIteration):
            next(results)
