"""Whether a driver's compiler makes right code of an integer unit's assembly: it is tried once, before it is used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.cache import Cache, UnitKey
from tflgpu.artifact.serializer import load_unit, store_unit
from tflgpu.codegen.probe_source import unit_program
from tflgpu.errors import BuildError, DeviceError
from tflgpu.kernels.integers.units import UNITS, IntegerUnit
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import Device
from tflgpu.runtime.opencl.program import make_kernel
from tflgpu.runtime.opencl.session import DeviceFailures, Session
from tflgpu.target import Target

LOGGER = logging.getLogger(__name__)

QUADS = 7  # of the products
START = 1000  # what a sum is before

_found: dict[UnitKey, bool] = {}  # in this process


def without_wrong_unit(
    target: Target, device: Device, cache: Cache | None, opened: Callable[[], Session] | None = None
) -> Target:
    """The target, without an integer unit whose sums are not right.

    opened: gives the session on which to try a unit of which neither this process nor the cache knows; without it such
    a unit is taken to be right.
    """
    name = target.integer_unit
    if name is None:
        return target
    unit = UNITS[name]
    source = unit_program(unit, QUADS, _run(unit))
    key = UnitKey(name, source, device.identity)
    right = _found.get(key)
    if right is None and cache is not None:
        right = load_unit(cache, key)
    if right is None and opened is not None:
        right = _is_right(opened(), unit, source)
        if cache is not None:
            store_unit(cache, key, right)
    if right is not None:
        _found[key] = right
    return replace(target, integer_unit=None) if right is False else target


def _run(unit: IntegerUnit) -> int:
    return 1 + max(rows for rows, _ in unit.shapes)


def _is_right(session: Session, unit: IntegerUnit, source: str) -> bool:
    """Whether all blocks of sums are right."""
    device = session.device
    activations, weights, expected = _products(unit)
    found = np.full(expected.size, START, np.int32)
    try:
        with DeviceFailures(device, "trying its integer unit"):
            flags = cl.mem_flags.COPY_HOST_PTR
            buffers = [cl.Buffer(session.context, flags, hostbuf=array) for array in (activations, weights, found)]
            kernel = make_kernel(build(source, session)[0], "multiply_integers")
            kernel.set_args(*buffers)
            with cl.CommandQueue(session.context) as queue:
                cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
                cl.enqueue_copy(queue, found, buffers[-1])
    except (BuildError, DeviceError) as error:
        LOGGER.warning("%s: integers are multiplied as floats, its compiler refuses the others: %s", device.name, error)
        return False
    if not np.array_equal(found, expected):
        LOGGER.warning("%s: integers are multiplied as floats, other sums would be wrong", device.name)
        return False
    return True


def _products(unit: IntegerUnit) -> tuple[NDArray[Any], NDArray[np.int8], NDArray[np.int32]]:
    """Activations and weights as they are packed for a unit, extremes among them, and the sums of all its blocks."""
    random, run = np.random.default_rng(0), _run(unit)
    columns = max(registers for _, registers in unit.shapes) * unit.lanes
    x = random.choice([0, 1, 127, 128, 254, 255], (QUADS, run, 4)) - unit.offset
    packed = x.astype(np.int16 if unit.widens else np.int8 if unit.offset else np.uint8)
    weights = random.choice([-128, -127, -1, 0, 1, 127], QUADS * columns * 4).astype(np.int8)
    sums = []
    for rows, registers in unit.shapes:
        own = registers * unit.lanes  # columns; a block of fewer ones reads a part of the weights
        seen = weights[: QUADS * own * 4].reshape(QUADS, 4 // unit.inputs, own, unit.inputs)
        inputs = x[:, :rows].reshape(QUADS, rows, 4 // unit.inputs, unit.inputs)
        sums.append(START + np.einsum("qrpi,qpci->rc", inputs, seen.astype(np.int64)).reshape(-1))
    return packed, weights, np.concatenate(sums).astype(np.int32)
