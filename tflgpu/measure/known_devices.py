"""Measurements of devices that come with tflgpu, so that these devices are not measured again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tflgpu.artifact.cache import DeviceIdentity
from tflgpu.artifact.records import decode
from tflgpu.artifact.serializer import PROBES_REVISION
from tflgpu.target.probes import Probes

TABLE = Path(__file__).with_name("known_devices.json")


@dataclass(frozen=True)
class KnownDevice:
    """A device, and what its probes found while it did nothing else.

    platform, device: in OpenCL's own texts. driver, date: with and on which it was measured. revision: of the probes.
    """

    platform: str
    device: str
    driver: str
    date: str
    revision: int
    probes: Probes

    def is_like(self, device: DeviceIdentity, compute_units: int) -> bool:
        """Whether a device is this one, with whatever driver, and its probes would measure the same now.

        Args:
            device: Its names; the driver's version does not count.
            compute_units: Those that are used; a part of a device is another device.
        """
        named = (self.platform, self.device) == (device.platform, device.device)
        return named and self.probes.compute_units == compute_units and self.revision == PROBES_REVISION


@cache
def known_devices() -> tuple[KnownDevice, ...]:
    """Return the rows of tflgpu's table."""
    return rows_of(TABLE)


def rows_of(table: Path) -> tuple[KnownDevice, ...]:
    """Return the rows that ``python -m scripts.measure_device`` has written.

    Args:
        table: A file of JSON.
    """
    return tuple(decode(KnownDevice, row, ()) for row in json.loads(table.read_text(encoding="utf-8")))


def shipped_probes(device: DeviceIdentity, compute_units: int) -> Probes | None:
    """Return the probes of a device that come with tflgpu; None if it is not in the table.

    Args:
        device: Its names.
        compute_units: Those that are used.
    """
    return next((row.probes for row in known_devices() if row.is_like(device, compute_units)), None)
