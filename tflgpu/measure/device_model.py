"""The cost model of a device: from what the cache or this package knows of it, or measured and then kept there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from tflgpu.artifact.cache import Cache, DeviceIdentity
from tflgpu.artifact.serializer import load_probes, open_cache, store_probes
from tflgpu.errors import BuildError, DeviceError
from tflgpu.options import CostModelChoice, Options
from tflgpu.runtime.opencl.devices import Device
from tflgpu.runtime.opencl.quirks import Driver, demotion
from tflgpu.runtime.opencl.session import Session
from tflgpu.target import Target

if TYPE_CHECKING:
    from tflgpu.target.probes import Probes

LOGGER = logging.getLogger(__name__)

VARIABLE = "TFLGPU_COST_MODEL"


@dataclass
class Known:
    """Facts that a process has found out about devices.

    Attributes:
        measured: Probes, by device.
        failed: Devices whose probes failed.
    """

    measured: dict[DeviceIdentity, Probes] = field(default_factory=dict)
    failed: set[DeviceIdentity] = field(default_factory=set)

    def forget(self) -> None:
        """Know nothing, as at the begin of a process."""
        self.measured.clear()
        self.failed.clear()


KNOWN = Known()


def planned_target(device: Device, options: Options, opened: Callable[[], Session] | None = None) -> Target:
    """Return the facts of a device that planning needs, with the cost model that the options ask for.

    Probes that fail leave the built-in model. The errors are those of
    :func:`tflgpu.artifact.serializer.open_cache`.

    Args:
        device: The device to plan for.
        options: The precision, the kernels, the cost model and the cache.
        opened: Gives the session on which to measure the device if that is to be done; None to measure nothing.
    """
    target = device.target(options)
    wanted = _wanted(options)
    if target.family != "gpu" or wanted == "built-in":
        return target
    from tflgpu.target.probes import with_costs  # a start on a CPU does without

    cache = open_cache(options)
    probes = measured_probes(device, cache) if wanted == "measured" else known_probes(device, cache)
    if probes is None and opened is not None and (wanted == "measured" or _worth_measuring(device, cache)):
        try:
            probes = measure(opened(), cache)
        except (BuildError, DeviceError) as error:
            LOGGER.warning("%s cannot be measured, so plans take the built-in costs: %s", device.name, error)
            KNOWN.failed.add(device.identity)
    return with_costs(target, probes)


def _wanted(options: Options) -> str:
    """Return the caller's choice. Raises ValueError for an unknown one in the environment."""
    if options.execution.cost_model != "auto":
        return options.execution.cost_model
    wanted, allowed = os.environ.get(VARIABLE, "auto"), get_args(CostModelChoice)
    if wanted not in allowed:
        raise ValueError(f"{VARIABLE} is {wanted!r}; it must be one of {', '.join(map(repr, allowed))}")
    return wanted


def known_probes(device: Device, cache: Cache | None) -> Probes | None:
    """Return the probes by which models are planned: those of this device, else those that come with tflgpu.

    Args:
        device: The device.
        cache: Where probes of earlier processes are; None for no cache.

    Returns:
        None if the device is not known.
    """
    from tflgpu.measure.known_devices import shipped_probes  # a warm start does without

    return measured_probes(device, cache) or shipped_probes(device.identity, device.compute_units)


def measured_probes(device: Device, cache: Cache | None) -> Probes | None:
    """Return the probes of a device: the cache's, because its models were planned by those, else this process's.

    Args:
        device: The device.
        cache: Also takes this process's probes, if it has none and can be written; None for no cache.

    Returns:
        None if nothing was measured.
    """
    found = None if cache is None else load_probes(cache, device.identity)
    if found is None and (cache is None or cache.is_writable):
        found = KNOWN.measured.get(device.identity)
        if found is not None and cache is not None:
            store_probes(cache, device.identity, found)
    return found


def measure(session: Session, cache: Cache | None = None) -> Probes:
    """Measure a device, and keep the result.

    Args:
        session: The device.
        cache: Takes the result; None keeps it for this process only.

    Raises:
        BuildError: A probe does not compile.
        DeviceError: A probe fails.
    """
    device = session.device
    probes = KNOWN.measured[device.identity] = probe(session)
    if cache is not None:
        store_probes(cache, device.identity, probes)
    return probes


def probe(session: Session) -> Probes:
    """Measure a device.

    Args:
        session: The device.

    Raises:
        BuildError: A probe does not compile.
        DeviceError: A probe fails.
    """
    from tflgpu.codegen.probe_source import probe_program  # a warm start must not import the templates
    from tflgpu.measure.probing import measure_probes

    device = session.device
    LOGGER.info("measuring %s", device.name)
    units = device.compute_units
    program = probe_program(device.limits, units, ptx=device.ptx, matrix_units=device.matrix_units)
    return measure_probes(session, program)


def _worth_measuring(device: Device, cache: Cache | None) -> bool:
    """Whether a device is measured unasked: a real GPU, if the result can be kept."""
    real = device.type != "cpu" and not demotion(Driver.of(device.handle)) and device.identity not in KNOWN.failed
    return real and cache is not None and cache.is_writable
