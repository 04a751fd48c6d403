"""The ceilings of a roofline model: what a device can do at most."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.measure.device_model import probe
from tflgpu.runtime.opencl.session import Session
from tflgpu.target.probes import Probes


@dataclass(frozen=True)
class Ceilings:
    """bytes_per_second: of a copy between buffers that no cache can hold, reads and writes together.

    flops: operations a second by precision; in fp16 those of tensor cores, where the device has them. Without
        fp16_fast where it does not compute in half.
    """

    bytes_per_second: float
    flops: dict[str, float]


def measure_ceilings(session: Session) -> Ceilings:
    """Return the ceilings of a device by its probes, measured now.

    Args:
        session: The device.

    Raises:
        BuildError: A probe does not compile.
        DeviceError: A probe fails.
    """
    return ceilings_of(probe(session))


def ceilings_of(probes: Probes) -> Ceilings:
    """Return the ceilings of a device: bytes of memory a second, and operations a second by precision.

    Args:
        probes: Measurements of the device.
    """
    macs = {"fp32": probes.float_macs, "fp16": probes.matrix_macs or probes.float_macs}
    if probes.half_macs:
        macs["fp16_fast"] = probes.half_macs
    return Ceilings(probes.global_bytes, {precision: 2 * rate for precision, rate in macs.items()})
