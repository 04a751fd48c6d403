"""Put a device into the table of known ones: ``python -m scripts.measure_device [--device D] [--rounds 7]``.

The table (tflgpu/measure/known_devices.json) comes with tflgpu. Nobody's first compilation measures a device that is in
it. While this runs, nothing else may use the device or keep the host busy: the medians of several measurements are
written, if these agree. They take the place of older ones of the device.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from statistics import median_low
from typing import Any

from tflgpu.artifact.serializer import PROBES_REVISION
from tflgpu.measure.device_model import probe
from tflgpu.measure.known_devices import TABLE, KnownDevice, known_devices
from tflgpu.runtime.opencl.devices import Device, choose
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target.probes import Probes, cost_model_from

# Between the largest and the smallest measurement of a number: a step of the series that costs are rounded to.
SPREAD = 1.2
UNSTEADY = ("seconds", "round_trip")  # the host's, and no part of a cost model


def typical(measured: Sequence[Probes]) -> Probes:
    """The median of each number. Raises ValueError, which names the first, if some differ too much."""
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(Probes)):
        values = [getattr(probes, name) for probes in measured]
        if name == "tile_products":
            found[name] = tuple(map(median_low, zip(*values, strict=True)))
            continue
        if name not in UNSTEADY and max(values) > SPREAD * min(values):
            raise ValueError(f"{name} is from {min(values):g} to {max(values):g}: something else runs; measure again")
        found[name] = median_low(values)
    return Probes(**found)


def with_device(rows: Sequence[KnownDevice], device: Device, probes: Probes) -> list[KnownDevice]:
    """The rows, by name, with one for this device."""
    today = datetime.now(UTC).date().isoformat()
    new = KnownDevice(device.platform, device.name, device.driver, today, PROBES_REVISION, probes)
    others = (row for row in rows if (row.platform, row.device) != (new.platform, new.device))
    return sorted((*others, new), key=lambda row: (row.platform, row.device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    session = open_session(device)
    probes = typical([probe(session) for _ in range(arguments.rounds)])
    rows = with_device(known_devices(), device, probes)
    TABLE.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    print(f"{device.name} is in {TABLE}: {cost_model_from(probes)}")


if __name__ == "__main__":
    main()
