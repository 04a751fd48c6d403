"""Submissions that are awaited or call functions, and pools of requests: the bits of runs, and errors to the caller."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.support.models import Builder

SHAPE = (1, 4, 4, 3)

CONFIGURATIONS = {
    "device": tflgpu.Options(),
    "partly on the cpu": tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=[1])),
}


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def model(request: pytest.FixtureRequest) -> tflgpu.CompiledModel:
    """y = exp(softmax(x))."""
    builder = Builder()
    x = builder.input(SHAPE, name="x")
    y = builder.add("SOFTMAX", [x], SHAPE, beta=1.0)
    source = builder.finish([builder.add("EXP", [y], SHAPE, name="y")])
    if request.param != "device":
        with pytest.warns(tflgpu.FallbackWarning):
            return tflgpu.compile(source, CONFIGURATIONS[request.param])
    return tflgpu.compile(source)


def image(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def check(model: tflgpu.CompiledModel, results: list[Any], seeds: range) -> None:
    assert len(results) == len(seeds)
    for result, seed in zip(results, seeds, strict=True):
        np.testing.assert_array_equal(result["y"], model.run(image(seed))["y"])


def test_submissions_are_awaited(model: tflgpu.CompiledModel) -> None:
    async def one(seed: int) -> dict[str, Any]:
        return await model.enqueue(image(seed))

    async def several() -> list[Any]:
        again = model.enqueue(image(0))
        assert await again is await again
        return await asyncio.gather(*map(one, range(12)))

    check(model, asyncio.run(several()), range(12))


def test_callbacks_come_in_order_and_once(model: tflgpu.CompiledModel) -> None:
    called: list[int] = []
    threads = set()
    over = threading.Event()

    def note(seed: int, submission: tflgpu.Submission) -> None:
        assert submission.done
        np.testing.assert_array_equal(submission.wait()["y"], expected[seed])
        called.append(seed)
        threads.add(threading.get_ident())
        if seed == 9:
            over.set()

    expected = [model.run(image(seed))["y"] for seed in range(10)]
    for seed in range(10):
        model.enqueue(image(seed)).add_done_callback(lambda submission, seed=seed: note(seed, submission))
    assert over.wait(30)
    assert called == list(range(10))
    assert threading.get_ident() not in threads
    late = model.enqueue(image(3))
    late.wait()
    late.add_done_callback(lambda submission: note(3, submission))
    assert called[-1] == 3
    assert threading.get_ident() in threads


def test_the_thread_of_callbacks_ends(model: tflgpu.CompiledModel) -> None:
    over = threading.Event()
    model.enqueue(image(0)).add_done_callback(lambda _: over.set())
    assert over.wait(30)
    deadline = time.monotonic() + 30
    while any(thread.name == "tflgpu-callbacks" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


ERRORS = [ZeroDivisionError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]


def fail(error: type[BaseException]) -> None:
    raise error


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_a_callback_is_logged(
    model: tflgpu.CompiledModel, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    over = threading.Event()
    submission = model.enqueue(image(0))
    submission.add_done_callback(lambda _: fail(error))
    submission.add_done_callback(lambda _: over.set())
    with caplog.at_level(logging.ERROR):
        assert over.wait(30)

    async def later() -> dict[str, Any]:
        return await model.enqueue(image(1))

    check(model, [asyncio.run(asyncio.wait_for(later(), 30))], range(1, 2))
    assert error.__name__ in caplog.text


@pytest.mark.parametrize("error", ERRORS)
def test_a_call_back_at_once_ends_only_a_caller_that_is_to_end(
    model: tflgpu.CompiledModel, error: type[BaseException]
) -> None:
    submission = model.enqueue(image(0))
    submission.wait()
    expected = pytest.raises(error) if error in (SystemExit, KeyboardInterrupt) else nullcontext()
    with expected:
        submission.add_done_callback(lambda _: fail(error))


def test_a_cancelled_coroutine_leaves_the_inference(model: tflgpu.CompiledModel) -> None:
    async def cancel() -> tflgpu.Submission:
        submission = model.enqueue(image(0))

        async def wait() -> None:
            await submission

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return submission

    check(model, [asyncio.run(cancel()).wait()], range(1))


def test_a_pool_gives_results_in_order(model: tflgpu.CompiledModel) -> None:
    with tflgpu.Pool(model, requests=3) as pool:
        assert len(pool) == 3
        assert pool.is_ready()
        for seed in range(20):
            pool.start_async(image(seed))
            assert pool._in_flight <= 3
        check(model, pool.wait_all(), range(20))
        assert pool.wait_all() == []


def test_a_pool_calls_back_in_order(model: tflgpu.CompiledModel) -> None:
    called: list[tuple[int, dict[str, Any]]] = []
    pool = tflgpu.Pool(model, requests=2)
    pool.set_callback(lambda submission, seed: called.append((seed, submission.wait())))
    for seed in range(10):
        pool.start_async(image(seed), seed)
    assert pool.wait_all() == []
    assert [seed for seed, _ in called] == list(range(10))
    check(model, [result for _, result in called], range(10))


def test_errors_of_a_pool_go_to_the_caller(model: tflgpu.CompiledModel) -> None:
    pool = tflgpu.Pool(model, requests=1)
    with pytest.raises(ValueError, match="has shape"):
        pool.start_async(image(0)[:, :2])
    pool.start_async(image(1))
    check(model, pool.wait_all(), range(1, 2))
    pool.set_callback(lambda _, divisor: 1 // divisor)
    for divisor in (1, 0, 2, 0):
        pool.start_async(image(0), divisor)
    with pytest.raises(ZeroDivisionError):
        pool.wait_all()
    assert pool.wait_all() == []
    pool.set_callback(lambda _, error: fail(error))
    for error in ERRORS:
        pool.start_async(image(0), error)
        with pytest.raises(error):
            pool.wait_all()
    with pytest.raises(ZeroDivisionError), tflgpu.Pool(model) as other:
        other.set_callback(lambda *_: 1 // 0)
        other.start_async(image(0))
    with pytest.raises(ValueError, match="requests is 0"):
        tflgpu.Pool(model, requests=0)


def test_coroutines_share_a_pool(model: tflgpu.CompiledModel) -> None:
    async def several() -> list[Any]:
        with tflgpu.Pool(model, requests=2) as pool:
            beside = asyncio.ensure_future(asyncio.sleep(0, "beside"))
            results = await asyncio.gather(*(pool.run(image(seed)) for seed in range(12)))
            assert await beside == "beside"
            with pytest.raises(ValueError, match="has shape"):
                await pool.run(image(0)[:, :2])
            return results

    check(model, asyncio.run(several()), range(12))


def test_threads_share_a_pool(model: tflgpu.CompiledModel) -> None:
    pool = tflgpu.Pool(model, requests=2)
    found: dict[int, Any] = {}

    def work(first: int) -> None:
        for seed in range(first, first + 8):
            found[seed] = pool.start_async(image(seed)).wait()

    threads = [threading.Thread(target=work, args=(8 * number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(model, [found[seed] for seed in range(24)], range(24))
