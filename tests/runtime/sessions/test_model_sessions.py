"""Signatures of one file, and states that stay between their runs."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.runtime.sessions.decoders import (
    CONFIGURATIONS,
    FILLED,
    LAYER,
    PLACES,
    STEPS,
    WIDTH,
    ByHand,
    at,
    decoder,
    one_layer,
    rows,
)
from tflgpu.compiled_model import CompiledModel as LitertModel
from tflgpu.model.reader import read_signatures
from tflgpu.tensor_buffer import TensorBuffer

BIND = {"cache": "cache", "next_count": "count", "window": "window", "summary": "summary"}

# States that `decode` both reads and writes.
PAIRS = {"cache": "cache", "next_count": "count", "window": "window"}

Array = NDArray[Any]


@pytest.fixture(params=CONFIGURATIONS)
def model(device_name: str, request: pytest.FixtureRequest) -> tflgpu.CompiledModel:
    chosen = CONFIGURATIONS[request.param]
    return tflgpu.compile(decoder(), replace(chosen, device=device_name, precision="fp32", cache="off"))


@pytest.fixture(scope="module")
def small() -> tflgpu.CompiledModel:
    """For what all executors do alike."""
    return tflgpu.compile(decoder(), tflgpu.Options(precision="fp32", cache="off"))


def check(outputs: Mapping[str, Array], expected: Sequence[Array]) -> None:
    assert list(outputs) == ["y", "z"][: len(expected)]
    for found, wanted in zip(outputs.values(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def check_states(session: tflgpu.ModelSession, hand: ByHand) -> None:
    for name in BIND.values():
        np.testing.assert_allclose(session.state(name), getattr(hand, name), atol=1e-6, err_msg=name)


def steps(session: tflgpu.ModelSession, hand: ByHand, seed: int) -> None:
    """Fill the cache and decode a few rows, each compared with what is computed by hand."""
    x = rows(seed, FILLED)
    check(session.run("prefill", {"x": x, "position": at(0)}), hand.run(x, 0))
    for step in range(STEPS):
        x = rows(seed + 1 + step, 1)
        check(session.run("decode", {"x": x, "position": at(FILLED + step)}), hand.run(x, FILLED + step))
    check_states(session, hand)


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
        check(submission.wait(), hand.run(x, step))
    check_states(session, hand)


def test_a_model_that_is_bound_keeps_states_between_its_runs(device_name: str) -> None:
    model = tflgpu.compile(decoder(), tflgpu.Options(device=device_name, precision="fp32", cache="off"))
    model.bind("matching")
    model.bind("next_count", "count")
    hand, x = ByHand(), rows(0, FILLED)
    check(model.run({"x": x, "position": at(1)}), hand.run(x, 1))
    x = rows(1, 1)
    check(model.signatures["decode"]([x, at(2)]), hand.run(x, 2))
    model.reset({"window": np.ones((FILLED, WIDTH), np.float32)})
    hand = ByHand()
    hand.window[:] = 1
    check(model.signatures["decode"].enqueue([x, at(1)]).wait(), hand.run(x, 1))


def test_a_model_that_is_compiled_with_its_states_is_the_one_that_sessions_run() -> None:
    """A session prepares each signature once, with its states."""
    bound = {"cache": "cache"}
    interface = tflgpu.Interface(signature="decode", bound=bound)
    model = tflgpu.compile(decoder(), tflgpu.Options(precision="fp32", cache="off", interface=interface))
    session = model.session(bound)
    session.prepare("decode")
    assert model._family.models() == (model,)
    session.prepare("prefill")
    (other,) = (each for each in model._family.models() if each is not model)
    window = np.zeros((FILLED, WIDTH), np.float32)
    session.run("prefill", {"x": rows(0, FILLED), "position": at(0), "count": np.zeros((1, 3)), "window": window})
    assert set(model._family.models()) == {model, other}
    with pytest.raises(ValueError, match="no signature 'train'"):
        session.prepare("train")


def test_signatures_are_read_without_the_model() -> None:
    model = decoder()
    assert read_signatures(model) == tflgpu.compile(model, tflgpu.Options(cache="off"))._artifact.signatures
    with pytest.raises(tflgpu.ModelError, match="damaged"):
        read_signatures(model[:100])


@pytest.mark.parametrize("kind", ["launch", "claiming", "persistent"])
def test_states_stay_on_the_device_and_are_written_in_place(device_name: str, kind: str) -> None:
    """But for the window, whose elements change places: it has two buffers, which take turns."""
    chosen = replace(CONFIGURATIONS[kind], device=device_name, precision="fp32", cache="off")
    model = tflgpu.compile(decoder(), replace(chosen, interface=tflgpu.Interface(signature="decode", bound=PAIRS)))
    assert [info.name for info in model.inputs] == ["x", "position", "summary"]
    assert [info.name for info in model.outputs] == ["y", "z"]
    (piece,) = model._artifact.pieces
    assert [state.next is None for state in piece.executable.states] == [True, True, False]
    hand = ByHand()
    for step in range(STEPS):
        x = rows(step, 1)
        check(model.run({"x": x, "position": at(step), "summary": hand.summary}), hand.run(x, step))
    model.reset_state()
    if kind != "persistent":  # which needs a clock
        model.profile({"x": rows(0, 1), "position": at(0), "summary": hand.summary}, runs=1)
    model.reset_state()
    hand = ByHand()
    check(model.run({"x": rows(0, 1), "position": at(0), "summary": hand.summary}), hand.run(rows(0, 1), 0))


def test_what_cannot_be_a_state_is_refused() -> None:
    def refused(message: str, error: type[Exception], **interface: Any) -> None:
        with pytest.raises(error, match=message):
            options = tflgpu.Options(interface=tflgpu.Interface(**interface), cache="off")
            tflgpu.compile(decoder(), replace(options, cpu_part=tflgpu.CpuPart(operators=["TANH"])))

    refused("one piece", tflgpu.UnsupportedError, bound=PAIRS)
    refused("caches", ValueError, bound={"caches": "cache"})
    refused("caches", ValueError, bound={"cache": "caches"})
    refused("cannot be bound", tflgpu.UnsupportedError, bound={"y": "x"})
    refused("two outputs", ValueError, bound={"cache": "cache", "window": "cache"})


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
    assert sorted(session.states) == ["cache", "summary", "window"]
    found = session.run("decode", {"x": rows(0, 1), "position": at(0), "count": np.ones((1, 3), np.float32)})
    assert sorted(found) == ["next_count", "y", "z"]


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
        x = rows(0, 1)
        check(model.session(bind=BIND).run(None, {"x": x, "position": at(0)}), ByHand().run(x, 0))


def test_outputs_stay_on_the_device_for_the_next_step(device_name: str) -> None:
    model = tflgpu.compile(one_layer(), tflgpu.Options(device=device_name, precision="fp16", cache="off"))
    session, x = model.session(), np.ones((1, LAYER.shape[1]), np.float32)
    y = cl_array.empty(model.queue, (1, LAYER.shape[0]), np.float32)
    assert session.enqueue("prefill", {"x": x}, outputs={"y": y}).wait() == {}
    for _ in range(2):
        session.enqueue("decode", {"x": cl_array.to_device(model.queue, x)}, outputs={"y": y})
    np.testing.assert_allclose(session.state("sum"), 3 * x @ LAYER.T, atol=0.3)
    np.testing.assert_allclose(y.get(), x @ LAYER.T, atol=0.1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of all buffers that are made."""
    found = list[int]()

    class Counted(cl.Buffer):
        def __init__(self, context: Any, flags: int, size: int = 0, hostbuf: Any = None) -> None:
            found.append(size or hostbuf.nbytes)
            super().__init__(context, flags, size, hostbuf)

    monkeypatch.setattr(cl, "Buffer", Counted)
    return found


@pytest.mark.parametrize("kind", ["launch", "claiming", "persistent"])
def test_equal_weights_are_on_the_device_once(device_name: str, kind: str, made: list[int], tmp_path: Path) -> None:
    """While models are compiled, and when they are loaded from the cache."""
    files = tflgpu.CacheFiles(path=tmp_path)
    options = replace(CONFIGURATIONS[kind], device=device_name, precision="fp32", cache_files=files)
    for _ in range(2):
        model = tflgpu.compile(one_layer(), options)
        assert sum(made) > LAYER.nbytes
        made.clear()
        decode = model.signatures["decode"]
        session = model.session()
        x = np.ones((1, LAYER.shape[1]), np.float32)
        y = session.run("decode", {"x": x})["y"]
        assert sum(made) < LAYER.nbytes / 2
        np.testing.assert_allclose(y, x @ LAYER.T, atol=1e-4)
        np.testing.assert_array_equal(decode.run({"x": x, "sum": np.zeros_like(y)})["y"], y)
        model.close()
        made.clear()


def test_signatures_load_without_a_cache_of_what_they_share(tmp_path: Path) -> None:
    """A bundle may have a signature with all of its weights, compiled alone."""
    files = tflgpu.CacheFiles(path=tmp_path)
    options = tflgpu.Options(precision="fp32", cache_files=files)
    for interface in (tflgpu.Interface(), tflgpu.Interface(signature="decode")):
        tflgpu.compile(one_layer(), replace(options, interface=interface)).close()
    decode = tflgpu.compile(one_layer(), replace(options, cache="require")).signatures["decode"]
    x = np.ones((1, LAYER.shape[1]), np.float32)
    y = decode.run({"x": x, "sum": np.zeros((1, LAYER.shape[0]), np.float32)})["y"]
    np.testing.assert_allclose(y, x @ LAYER.T, atol=1e-4)


def test_signature_runners_share_weights(made: list[int]) -> None:
    interpreter = tflgpu.Interpreter(model_content=one_layer(), options=tflgpu.Options(precision="fp32", cache="off"))
    x, last = np.ones((1, LAYER.shape[1]), np.float32), np.ones((1, LAYER.shape[0]), np.float32)
    for key, are_new in (("prefill", True), ("decode", False)):
        made.clear()
        found = interpreter.get_signature_runner(key)(x=x, sum=last)
        assert (sum(made) > LAYER.nbytes) == are_new
        np.testing.assert_allclose(found["sum"], x @ LAYER.T + 1, atol=1e-4)


def test_signatures_of_a_litert_model_share_weights(made: list[int]) -> None:
    """They stay on one queue, also after an input of the first one was resized."""
    model = LitertModel.from_buffer(one_layer(), options=tflgpu.Options(precision="fp32", cache="off"))
    assert sum(made) > LAYER.nbytes
    x, last = np.ones((1, LAYER.shape[1]), np.float32), np.ones((1, LAYER.shape[0]), np.float32)
    for key in ("decode", "prefill"):
        made.clear()
        found = {name: np.zeros((1, LAYER.shape[0]), np.float32) for name in ("y", "sum")}
        buffers = {
            side: {name: TensorBuffer.create_from_host_memory(array) for name, array in arrays.items()}
            for side, arrays in (("given", {"x": x, "sum": last}), ("found", found))
        }
        model.run_by_name(key, buffers["given"], buffers["found"])
        assert sum(made) < LAYER.nbytes / 2
        np.testing.assert_allclose(found["sum"], x @ LAYER.T + 1, atol=1e-4)
    first, second = model._model.signatures
    first.resize(0, [2, LAYER.shape[1]], strict=False)
    assert first.compiled().outputs[0].shape == (2, LAYER.shape[0])
    assert first.compiled().queue == second.compiled().queue
    model.close()
