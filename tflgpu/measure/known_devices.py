"""Measurements of devices that come with tflgpu, and descriptions of devices in files.

Descriptions that come with tflgpu are in the folder ``device_models``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tflgpu.artifact.cache import DeviceIdentity
from tflgpu.artifact.records import decode
from tflgpu.artifact.serializer import PROBES_REVISION
from tflgpu.options import Options
from tflgpu.runtime.opencl.description import DeviceDescription
from tflgpu.target import Target
from tflgpu.target.probes import Probes, with_costs

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


FORMAT = 1
FOLDER = Path(__file__).with_name("device_models")


@dataclass(frozen=True, kw_only=True)
class DeviceModel:
    """Description of a device in a file.

    format: of the file, :data:`FORMAT`. source: where the facts come from. device: what plans keep to. measured: its
    costs; None for those that are built in.
    """

    format: int
    source: str
    device: DeviceDescription
    measured: Probes | None

    def target(self, options: Options) -> Target:
        """Return the facts of the device that planning needs.

        Args:
            options: The precision and the kernels.

        Raises:
            DeviceError: The device does not have what the options ask for.
        """
        return with_costs(self.device.target(options), self.measured)


def shipped_models() -> dict[str, Path]:
    """Return the files that come with tflgpu, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.json"))}


def device_model(request: str) -> DeviceModel:
    """Return a description of a device.

    Args:
        request: A name among :func:`shipped_models`, or the path of a file.

    Raises:
        ValueError: There is no such name or file, or the file is no description; the message says what is.
    """
    known = shipped_models()
    path = known.get(request, Path(request))
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        names = ", ".join(known)
        raise ValueError(
            f"there is no device model {request!r}; give one of {names}, or a file of `tflgpu devices --describe` "
            f"({error.strerror})"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON of `tflgpu devices --describe`: {error}") from error
    return _read(path, data)


def _read(path: Path, data: Any) -> DeviceModel:
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, Mapping) else type(data).__name__
        raise ValueError(f"{path} is no description of a device of format {FORMAT}: its format is {found!r}")
    try:
        model = decode(DeviceModel, data, ())
    except KeyError as error:
        raise ValueError(f"{path} lacks the field {error} of a description of a device") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is no description of a device: {error}") from error
    if model.device.compute_units < 1 or (model.measured is not None and not model.measured.is_sound):
        raise ValueError(f"{path} describes no device that can compute: numbers of it are not positive")
    return model
