"""Measurements of devices, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tflgpu
from tflgpu.artifact.serializer import open_cache
from tflgpu.cli.terminal.listing import Listing
from tflgpu.cli.terminal.progress import display
from tflgpu.measure.device_model import known_probes, measure
from tflgpu.runtime.opencl.devices import Device
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target.probes import Probes

# Measurements to show, with their units; 0 stands for what a device does not have.
ROWS: tuple[tuple[str, str, Callable[[Probes], float]], ...] = (
    ("multiply-adds in float", "GFLOP/s", lambda p: 2e-9 * p.float_macs),
    ("the same in convolutions", "GFLOP/s", lambda p: 32e-9 * max(rate for *_, rate in p.tile_products)),
    ("multiply-adds in half", "GFLOP/s", lambda p: 2e-9 * p.half_macs),
    ("multiply-adds of tensor cores", "GFLOP/s", lambda p: 2e-9 * p.matrix_macs),
    ("best vectors", "lanes", lambda p: p.vector_width),
    ("copy in memory, both ways", "GB/s", lambda p: 1e-9 * p.global_bytes),
    ("reads of one MiB by all", "GB/s", lambda p: 1e-9 * p.shared_bytes),
    ("reads from the nearest cache", "GB/s", lambda p: 1e-9 * p.cached_bytes),
    ("reads from local memory", "GB/s", lambda p: 1e-9 * p.local_bytes),
    ("a load from memory", "ns", lambda p: 1e9 * p.memory_latency),
    ("exchange and two barriers", "ns", lambda p: 1e9 * p.exchange),
    ("barrier of all work-groups", "ns", lambda p: 1e9 * p.grid_barrier),
    ("launch among many", "us", lambda p: 1e6 * p.launch),
    ("launch and wait", "us", lambda p: 1e6 * p.round_trip),
    ("measuring all this", "ms", lambda p: 1e3 * p.seconds),
)


def measured_devices(devices: Sequence[Device], cache_dirs: list[Path] | None, *, now: bool) -> dict[int, Probes]:
    """By index of device. now: measure each and keep it, else what the cache has. Raises DeviceError."""
    cache = open_cache(tflgpu.Options(cache_files=tflgpu.CacheFiles(path=cache_dirs)))
    found: dict[int, Probes] = {}
    with display() as shown:
        for device in devices:
            if now:
                with shown.task(f"measuring {device.name}"):
                    found[device.index] = measure(open_session(device), cache)
            elif (probes := known_probes(device, cache)) is not None:
                found[device.index] = probes
    return found


def measurements_table(measured: Mapping[int, Probes]) -> Listing:
    """Return a column for each measured device."""
    names = [f"device {index}" for index in measured]
    listing = Listing("measured", "", *names, right=names)
    for name, unit, value in ROWS:
        listing.add_row(name, unit, *(_digits(value(probes)) for probes in measured.values()))
    return listing


def _digits(number: float) -> str:
    """Two digits at least; a dash for none."""
    if not number:
        return "-"
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
