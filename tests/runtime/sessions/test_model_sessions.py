"""Signatures of one file, and states that stay between their runs."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest

import tflgpu
from tests.runtime.sessions.decoders import (
    CONFIGURATIONS,
    FILLED,
    PLACES,
    STEPS,
    WIDTH,
    ByHand,
    at,
    decoder,
    rows,
)

BIND = {"cache": "cache", "next_count": "count"}


@pytest.fixture(params=CONFIGURATIONS)
def model(device_name: str, request: pytest.FixtureRequest) -> tflgpu.CompiledModel:
    chosen = CONFIGURATIONS[request.param]
    return tflgpu.compile(decoder(), replace(chosen, device=device_name, precision="fp32", cache="off"))


@pytest.fixture(scope="module")
def small() -> tflgpu.CompiledModel:
    """For what all executors do alike."""
    return tflgpu.compile(decoder(), tflgpu.Options(precision="fp32", cache="off"))


def steps(session: tflgpu.ModelSession, hand: ByHand, seed: int) -> None:
    """Fill the cache and decode a few rows, each compared with what is computed by hand."""
    x = rows(seed, FILLED)
    y = session.run("prefill", {"x": x, "position": at(0)})
    assert list(y) == ["y"]
    np.testing.assert_allclose(y["y"], hand.run(x, 0), atol=1e-5)
    for step in range(STEPS):
        x = rows(seed + 1 + step, 1)
        y = session.run("decode", {"x": x, "position": at(FILLED + step)})
        np.testing.assert_allclose(y["y"], hand.run(x, FILLED + step), atol=1e-5)
    np.testing.assert_allclose(session.state("cache"), hand.cache, atol=1e-6)
    np.testing.assert_array_equal(session.state("count"), hand.count)


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_states_go_from_one_signature_to_the_other_as_by_hand(model: tflgpu.CompiledModel) -> None:
    session, other = model.session(bind=BIND), model.session(bind=BIND)
    steps(session, ByHand(), 0)
    steps(other, ByHand(), 100)
    hand = ByHand()
    hand.cache[:] = 3
    session.reset({"cache": np.full((PLACES, WIDTH), 3, np.float32)})
    steps(session, hand, 200)
    session.reset()
    np.testing.assert_array_equal(session.state("cache"), 0)
    steps(session, ByHand(), 300)
    assert other.state("count")[0, 0] == 1 + STEPS


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_runs_that_are_enqueued_read_what_those_before_them_write(model: tflgpu.CompiledModel) -> None:
    session, hand = model.session(bind=BIND), ByHand()
    given = [rows(step, 1) for step in range(STEPS)]
    waiting = [session.enqueue("decode", {"x": x, "position": at(step)}) for step, x in enumerate(given)]
    for step, (x, submission) in enumerate(zip(given, waiting, strict=True)):
        np.testing.assert_allclose(submission.wait()["y"], hand.run(x, step), atol=1e-5)
    np.testing.assert_allclose(session.state("cache"), hand.cache, atol=1e-6)


def test_a_model_that_is_bound_keeps_states_between_its_runs(device_name: str) -> None:
    model = tflgpu.compile(decoder(), tflgpu.Options(device=device_name, precision="fp32", cache="off"))
    model.bind("cache")
    model.bind("next_count", "count")
    hand, x = ByHand(), rows(0, FILLED)
    np.testing.assert_allclose(model.run({"x": x, "position": at(1)})["y"], hand.run(x, 1), atol=1e-5)
    x = rows(1, 1)
    (y,) = model.signatures["decode"]([x, at(2)]).values()
    np.testing.assert_allclose(y, hand.run(x, 2), atol=1e-5)
    model.reset({"count": np.full((1, 3), 7, np.float32)})
    hand = ByHand()
    np.testing.assert_allclose(
        model.enqueue([rows(0, FILLED), at(1)]).wait()["y"], hand.run(rows(0, FILLED), 1), atol=1e-5
    )


def test_signatures_are_a_mapping(small: tflgpu.CompiledModel) -> None:
    signatures = small.signatures
    assert list(signatures) == ["prefill", "decode"]
    assert signatures["prefill"] is small
    assert signatures["decode"] is signatures["decode"]
    assert signatures["decode"].queue == small.queue
    assert signatures["decode"].inputs[0].shape == (1, WIDTH)
    assert signatures["decode"].signatures["prefill"] is small
    with pytest.raises(KeyError):
        signatures["encode"]


def test_matching_binds_what_has_equal_names(small: tflgpu.CompiledModel) -> None:
    session = small.session()
    assert session.states == ("cache",)
    found = session.run("decode", {"x": rows(0, 1), "position": at(0), "count": np.ones((1, 3), np.float32)})
    assert sorted(found) == ["next_count", "y"]


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ({"caches": "cache"}, "no output 'caches'"),
        ({"cache": "caches"}, "no input 'caches'"),
        ({"y": "x"}, "cannot be bound"),
        ({"cache": "count"}, "cannot be bound"),
        ("equal", "'matching'"),
        ({}, "no output of the model"),
    ],
)
def test_wrong_bindings_are_refused(small: tflgpu.CompiledModel, bind: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small.session(bind=bind)  # type: ignore[arg-type]
    if isinstance(bind, dict):
        with pytest.raises(ValueError, match=message):
            small.bind(bind)


def test_wrong_calls_of_a_session_are_refused(small: tflgpu.CompiledModel) -> None:
    session = small.session(bind=BIND)
    given = {"x": rows(0, 1), "position": at(0)}
    with pytest.raises(ValueError, match="no signature 'encode'"):
        session.run("encode", given)
    with pytest.raises(ValueError, match="is a state of the session"):
        session.run("decode", {**given, "cache": np.zeros((PLACES, WIDTH), np.float32)})
    with pytest.raises(ValueError, match="is a state of the session"):
        session.run("decode", given, outputs={"cache": np.zeros((PLACES, WIDTH), np.float32)})
    with pytest.raises(TypeError, match="dictionary"):
        session.run("decode", [rows(0, 1)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no state 'x'"):
        session.state("x")
    with pytest.raises(ValueError, match="no state 'x'"):
        session.reset({"x": rows(0, 1)})
    with pytest.raises(ValueError, match="state 'cache' is float32"):
        session.reset({"cache": rows(0, 1)})
    with pytest.raises(ValueError, match="state 'cache' is float32"):
        session.reset({"cache": np.zeros((PLACES, WIDTH))})


def test_one_call_of_a_session_at_a_time(small: tflgpu.CompiledModel) -> None:
    session, errors = small.session(), list[Exception]()

    def from_another_thread() -> None:
        try:
            session.state("cache")
        except RuntimeError as error:
            errors.append(error)

    with session._turn():
        thread = threading.Thread(target=from_another_thread)
        thread.start()
        thread.join()
    assert "another call of this session" in str(errors[0])
    assert session.state("cache").shape == (PLACES, WIDTH)


def test_what_is_closed_runs_no_more() -> None:
    model = tflgpu.compile(decoder(), tflgpu.Options(precision="fp32", cache="off"))
    session, closed = model.session(bind=BIND), model.session(bind=BIND)
    given = {"x": rows(0, 1), "position": at(0)}
    session.run("decode", given)
    with closed:
        pass
    with pytest.raises(ValueError, match="session is closed"):
        closed.run("decode", given)
    decode = model.signatures["decode"]
    model.close()
    for call in (
        lambda: session.run("decode", given),
        lambda: session.state("cache"),
        decode.reset_state,
        lambda: model.signatures["decode"],
        model.session,
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_signature_outlives_its_file_and_goes_through_pickle() -> None:
    decode = tflgpu.compile(decoder(), tflgpu.Options(precision="fp32", cache="off")).signatures["decode"]
    copy = pickle.loads(pickle.dumps(decode))
    for model in (decode, copy):
        hand, x = ByHand(), rows(0, 1)
        y = model.session(bind=BIND).run(None, {"x": x, "position": at(0)})["y"]
        np.testing.assert_allclose(y, hand.run(x, 0), atol=1e-5)
