"""Whether a driver's compiler makes right code of an integer unit's assembly: it is tried once, before it is used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyopencl as cl

from tflgpu.artifact.cache import Cache, unit_key
from tflgpu.artifact.serializer import load_unit, store_unit
from tflgpu.codegen.probe_source import trial_program
from tflgpu.errors import BuildError, DeviceError
from tflgpu.kernels.architecture import ARCHITECTURES, Trial
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import Device
from tflgpu.runtime.opencl.program import make_kernel
from tflgpu.runtime.opencl.session import DeviceFailures, Session
from tflgpu.target import Target

LOGGER = logging.getLogger(__name__)

FOUND: dict[str, bool] = {}  # whether sums are right, by name of the key, in this process


def without_wrong_unit(
    target: Target, device: Device, cache: Cache | None, opened: Callable[[], Session] | None = None
) -> Target:
    """Return the target, without an integer unit whose sums are not right.

    Args:
        target: Names the unit, if there is one.
        device: The device.
        cache: Knows units that were tried earlier; None for no cache.
        opened: Gives the session on which to try a unit of which neither this process nor the cache knows. None takes
            such a unit to be right.
    """
    name = target.integer_unit
    tried = (each.trial for each in ARCHITECTURES if each.trial is not None and each.includes(target))
    if name is None or (trial_of := next(tried, None)) is None:
        return target
    trial = trial_of(target)
    source = trial_program(trial)
    key = unit_key(name, source, device.identity)
    right = FOUND.get(key.name)
    if right is None and cache is not None:
        right = load_unit(cache, key)
    if right is None and opened is not None:
        right = _is_right(opened(), trial, source)
        if cache is not None:
            store_unit(cache, key, right)
    if right is not None:
        FOUND[key.name] = right
    return replace(target, integer_unit=None) if right is False else target


def _is_right(session: Session, trial: Trial, source: str) -> bool:
    """Whether all sums are right."""
    device = session.device
    found = trial.before.copy()
    try:
        with DeviceFailures(device, "trying its integer unit"):
            flags = cl.mem_flags.COPY_HOST_PTR
            buffers = [cl.Buffer(session.context, flags, hostbuf=array) for array in (*trial.inputs, found)]
            kernel = make_kernel(build(source, session)[0], trial.kernel)
            kernel.set_args(*buffers)
            with cl.CommandQueue(session.context, session.device.handle) as queue:
                cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
                cl.enqueue_copy(queue, found, buffers[-1])
    except (BuildError, DeviceError) as error:
        LOGGER.warning("%s: integers are multiplied as floats, its compiler refuses the others: %s", device.name, error)
        return False
    if not np.array_equal(found, trial.after):
        LOGGER.warning("%s: integers are multiplied as floats, other sums would be wrong", device.name)
        return False
    return True
