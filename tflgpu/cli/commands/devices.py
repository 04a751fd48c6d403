"""``tflgpu devices``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.markup import escape

import tflgpu
from tflgpu.artifact.serializer import open_cache
from tflgpu.cli.arguments import AsJson, CacheDirs
from tflgpu.cli.console import Listing, console, print_json, print_warning
from tflgpu.cli.progress import display
from tflgpu.measure.device_model import known_probes, measure
from tflgpu.measure.known_devices import FORMAT, DeviceModel
from tflgpu.runtime.opencl.devices import Device, choose, idle_gpus, no_device
from tflgpu.runtime.opencl.driver_files import source_of
from tflgpu.runtime.opencl.quirks import Driver, demotion
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


def list_devices(
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure each device, about a second each, and keep that in the cache."),
    ] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", help="Only this one.", show_default="all of them")
    ] = "",
    describe: Annotated[
        bool,
        typer.Option(
            "--describe",
            help="Print a description of one device, the preferred one or that of --device, as "
            "JSON. `tflgpu show --device-model FILE` plans for it on any machine.",
        ),
    ] = False,
    cache_dirs: CacheDirs = None,
    as_json: AsJson = False,
) -> None:
    """List the OpenCL devices, the preferred one first.

    Further tables tell where their drivers were found, and what was measured of them, by --measure or by the first
    compilation for a GPU. By that planning for GPUs chooses tiles and fusions. --measure leaves out devices with known
    faults, unless --device names one.
    """
    every = tflgpu.devices()
    if not every:
        raise no_device()
    found = (choose(device),) if device else every
    probed = [d for d in found if device or not (measure and demotion(Driver.of(d.handle)))]
    measured = measured_devices(probed, cache_dirs, now=measure)
    if describe:
        print_json(_description(found[0], measured.get(found[0].index)))
    elif as_json:
        facts = {index: asdict(probes) for index, probes in measured.items()}
        print_json([device_facts(d) | {"measured": facts.get(d.index)} for d in found])
    else:
        _print_devices(found)
        _print_drivers(found)
        if measured:
            console.print()
            console.print(measurements_table(measured))
    for sentence in idle_gpus(every):
        print_warning(sentence)


def _description(device: Device, probes: Probes | None) -> dict[str, Any]:
    """Return the content of a file that :func:`tflgpu.measure.known_devices.device_model` reads."""
    source = f"tflgpu {tflgpu.__version__} on a machine with this device"
    return asdict(DeviceModel(format=FORMAT, source=source, device=device.description, measured=probes))


def _print_devices(found: Sequence[Device]) -> None:
    listing = Listing("#", "name", "platform", "type", "OpenCL", "memory", "fp16", "executor", right=("#", "memory"))
    for d in found:
        fp16 = "yes" if d.limits.half_arithmetic else "no"
        facts = (d.name, d.platform, d.type, _opencl_version(d.version), decimal(d.memory), fp16, d.executor)
        listing.add_row(str(d.index), *map(escape, facts), style="bold" if d.index == 0 else "")
    console.print(listing)


def _print_drivers(found: Sequence[Device]) -> None:
    listing = Listing("platform", "found by", "driver")
    sources = {d.platform: source_of(d.handle.platform) for d in found}
    for platform, source in sources.items():
        if source is not None:
            listing.add_row(*map(escape, (platform, source.found_by, source.library)))
    if listing.row_count:
        console.print()
        console.print(listing)


def device_facts(device: Device) -> dict[str, Any]:
    """Return the fields of a device that are data, and where its driver was found."""
    library, found_by = source_of(device.handle.platform) or (None, None)
    return device.as_dict() | {"driver_library": library, "driver_found_by": found_by}


def _opencl_version(text: str) -> str:
    """``"OpenCL 3.0 <whatever the vendor adds>"`` -> ``"3.0"``, by the format that the OpenCL specification fixes."""
    return text.split()[1] if text.startswith("OpenCL ") else text
