"""Which device a predictor takes, so that those of one machine share what there is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from filelock import FileLock, Timeout

from tflgpu.batch.node_locks import node_lock
from tflgpu.options import Options
from tflgpu.runtime.opencl.devices import VARIABLE, Device, choose, devices

Request = str | int  # as Options.device has it


def own_device(options: Options, shared: Sequence[Request] | None) -> tuple[Options, FileLock | None]:
    """Return the options with this predictor's device, and the lock that keeps the device.

    Args:
        options: Their device is replaced.
        shared: Devices of which each process takes one; None for the GPU that Ray assigned, if any.

    Returns:
        The options, and a lock that is held; None if no device is shared.

    Raises:
        ValueError: The list is empty.
        DeviceError: A device is not there.
        OSError: There is no place for locks.
    """
    if shared is not None:
        if not shared:
            raise ValueError("devices is empty; name one device or more")
        device, lock = _lease([choose(request) for request in shared])
        return replace(options, device=device.index), lock
    if options.device == "auto" and VARIABLE not in os.environ and (assigned := _gpus_of_the_actor()):
        gpu = _assigned_gpu(assigned)
        return (replace(options, device=gpu.index) if gpu else options), None
    return options, None


def _lease(offered: Sequence[Device]) -> tuple[Device, FileLock]:
    """Return the first device that the fewest predictors have, and the lock that says so."""
    for tenant in count():
        for device in offered:
            lock = node_lock(f"device-{device.index}-{tenant}")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            return device, lock
    raise AssertionError("the search for a device ended without one")


def _gpus_of_the_actor() -> list[str]:
    """Return the ids of the GPUs that Ray gave the actor in which this runs; none elsewhere."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return []
    return [str(number) for number in ray.get_gpu_ids()]


def _assigned_gpu(ids: Sequence[str]) -> Device | None:
    """Return the OpenCL device for Ray's ids. Ray hides all others by the variable that CUDA and ROCm know.

    Where a driver shows them to OpenCL nevertheless, the id is the position; the order of devices is the same in all
    processes, so that no two actors meet.
    """
    gpus = [device for device in devices() if device.type == "gpu"]
    if len(gpus) > len(ids) and ids[0].isdecimal() and int(ids[0]) < len(gpus):
        return gpus[int(ids[0])]
    return gpus[0] if gpus else None
