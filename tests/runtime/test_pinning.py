"""Arrays that come again are pinned, and nothing else about a run changes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyopencl as cl
import pytest

from tflgpu.artifact.executable import Array
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session
from tflgpu.runtime.pinned_memory import ArrayPins

SHAPE = (1, 224, 224, 3)


class Pin:
    """In place of an OpenCL buffer, which cannot be referred to weakly."""


@pytest.fixture
def pins(device_name: str) -> ArrayPins:
    return ArrayPins(open_session(choose(device_name)).context)


def sightings_until_pinned(pins: ArrayPins, array: Array, most: int = 20) -> int | None:
    return next((n for n in range(1, most + 1) if pins.hold(array)), None)


def test_the_fourth_time_pins(pins: ArrayPins) -> None:
    array = np.zeros(SHAPE, np.float32)
    assert sightings_until_pinned(pins, array) == ArrayPins.SIGHTINGS
    assert pins.hold(array)


def test_views_are_known_by_their_memory(pins: ArrayPins) -> None:
    """``image[None]`` is a new object each time; another part of the same array is another region."""
    images = np.zeros((2, *SHAPE), np.float32)
    assert [pins.hold(images[0][None]) for _ in range(5)] == [False] * 3 + [True] * 2
    assert not pins.hold(images[1])


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(ArrayPins.WORTHWHILE // 4 - 1, np.float32),
        np.frombuffer(bytearray(1 << 20), np.float32),
        np.frombuffer(bytearray(1 << 20), np.float32).reshape(4, -1)[1:],
    ],
    ids=["small", "bytearray", "view of a bytearray"],
)
def test_small_arrays_and_foreign_memory_are_not_pinned(array: Array, pins: ArrayPins) -> None:
    assert sightings_until_pinned(pins, array) is None


def test_new_arrays_are_never_pinned(pins: ArrayPins) -> None:
    """Even at the address of one that is gone, where the next is allocated as a rule."""
    for _ in range(20):
        assert not pins.hold(np.zeros(SHAPE, np.float32))
    assert not pins._known


def pin_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pins be objects that hold no memory of a driver."""
    monkeypatch.setattr(ArrayPins, "_pinned", lambda *_: Pin())


def test_a_pin_goes_with_its_array(pins: ArrayPins, monkeypatch: pytest.MonkeyPatch) -> None:
    pin_nothing(monkeypatch)
    array = np.zeros(SHAPE, np.float32)
    sightings_until_pinned(pins, array)
    (known,) = pins._known.values()
    pin = weakref.ref(known.pin)
    del known, array
    assert pin() is None


def test_those_that_came_longest_ago_are_forgotten(pins: ArrayPins) -> None:
    first, *others = (np.zeros(SHAPE, np.float32) for _ in range(ArrayPins.AT_MOST + 1))
    sightings_until_pinned(pins, first)
    for other in others:
        sightings_until_pinned(pins, other)
    assert all(pins.hold(other) for other in others)
    assert not pins.hold(first)


def test_a_driver_that_refuses_costs_nothing(pins: ArrayPins, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> cl.Buffer:
        raise cl.RuntimeError("no memory can be pinned")

    monkeypatch.setattr(cl, "Buffer", refuse)
    assert sightings_until_pinned(pins, np.zeros(SHAPE, np.float32)) is None


def test_pins_go_with_their_model(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and not when garbage is collected."""
    pin_nothing(monkeypatch)
    pins, array = ArrayPins(open_session(choose(device_name)).context), np.zeros(SHAPE, np.float32)
    sightings_until_pinned(pins, array)
    (known,) = pins._known.values()
    pin = weakref.ref(known.pin)
    gc.disable()
    try:
        del known, pins
        assert pin() is None
    finally:
        gc.enable()
