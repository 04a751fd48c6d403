"""Descriptions of devices in files: ``tflgpu devices --describe`` writes one, ``--device-model`` plans for it.

Some come with tflgpu, in the folder ``device_models``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tflgpu.artifact.records import decode
from tflgpu.options import Options
from tflgpu.runtime.opencl.description import DeviceDescription
from tflgpu.target import Target
from tflgpu.target.probes import Probes, with_costs

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
