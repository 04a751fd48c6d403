"""The GPUs of a machine as the operating system's kernel lists them, with or without an OpenCL driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Gpu(NamedTuple):
    """maker: a key of :data:`WORDS`. name: for people. node: what programs open. kernel_driver: its module."""

    maker: str
    name: str
    node: str
    kernel_driver: str


# Words by which a maker's GPUs are known among OpenCL's devices, in the name of the device or its platform.
WORDS = {
    "NVIDIA": ("nvidia",),
    "Intel": ("intel",),
    "AMD": ("amd", "radeon"),
    "Mali": ("mali",),
    "Adreno": ("adreno", "qualcomm"),
    "PowerVR": ("powervr",),
}

PCI_MAKERS = {"0x10de": "NVIDIA", "0x8086": "Intel", "0x1002": "AMD"}

# Drivers of the kernel for GPUs that are no PCI devices.
KERNEL_DRIVERS = {"panfrost": "Mali", "panthor": "Mali", "msm": "Adreno", "powervr": "PowerVR", "pvrsrvkm": "PowerVR"}

# Device files that the makers' own kernel drivers create.
OWN_NODES = (
    ("mali[0-9]*", "Mali", "mali"),
    ("kgsl-3d0", "Adreno", "kgsl"),
    ("pvr_sync", "PowerVR", "pvrsrvkm"),
)

SMI_SECONDS = 5.0

# By which users, and Ray, keep a process from NVIDIA's GPUs.
VISIBLE = "CUDA_VISIBLE_DEVICES"
NONE_VISIBLE = ("", "-1", "NoDevFiles")


def gpus(root: Path = Path("/")) -> list[Gpu]:
    """Return the GPUs that this process could open if it may, and those that only ``nvidia-smi`` knows.

    Args:
        root: The folder that has ``dev`` and ``sys``.
    """
    found = [*_nvidia_nodes(root), *_render_nodes(root)]
    for pattern, maker, kernel_driver in OWN_NODES:
        found += [
            Gpu(maker, f"{maker} GPU", _path(root, node), kernel_driver)
            for node in sorted((root / "dev").glob(pattern))
        ]
    if not any(gpu.maker == "NVIDIA" for gpu in found):
        found += _smi_gpus(root)
    return found


def gpus_without_driver(found: Iterable[tuple[str, str]], root: Path = Path("/")) -> list[Gpu]:
    """Return the GPUs for which OpenCL lists no device of their maker, without those that are hidden from this process.

    Args:
        found: Name and platform of the GPUs that OpenCL lists.
        root: Of the file system.
    """
    if sys.platform != "linux":
        return []
    words = " ".join(text for names in found for text in names).lower()
    if os.environ.get(VISIBLE) in NONE_VISIBLE:
        words += " nvidia"
    return [gpu for gpu in gpus(root) if not any(word in words for word in WORDS[gpu.maker])]


def _nvidia_nodes(root: Path) -> Iterator[Gpu]:
    models = []
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        for line in _text(information).splitlines():
            if line.startswith("Model:"):
                models.append(line.partition(":")[2].strip())
    for i, node in enumerate(sorted((root / "dev").glob("nvidia[0-9]*"))):
        yield Gpu("NVIDIA", models[i] if i < len(models) else "NVIDIA GPU", _path(root, node), "nvidia")


def _render_nodes(root: Path) -> Iterator[Gpu]:
    """Return the devices in ``/dev/dri`` that compute; one of NVIDIA's own driver has another node beside."""
    for node in sorted((root / "dev/dri").glob("renderD*")):
        device = root / "sys/class/drm" / node.name / "device"
        facts = dict(line.partition("=")[::2] for line in _text(device / "uevent").splitlines())
        kernel_driver = facts.get("DRIVER", "")
        maker = PCI_MAKERS.get(_text(device / "vendor").strip(), KERNEL_DRIVERS.get(kernel_driver, ""))
        if maker and kernel_driver != "nvidia":
            yield Gpu(maker, f"{maker} GPU", _path(root, node), kernel_driver)


def _smi_gpus(root: Path) -> Iterator[Gpu]:
    """Where GPUs have no nodes of their own, as in Windows' subsystem for Linux."""
    import shutil  # most machines do without these

    program = shutil.which("nvidia-smi", path=f"{os.environ.get('PATH', '')}:/usr/lib/wsl/lib")
    if program is None or root != Path("/"):
        return
    import subprocess

    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=SMI_SECONDS, check=True)
        for line in listed.stdout.splitlines():
            if line.startswith("GPU "):  # GPU 0: NVIDIA H100 (UUID: ...)
                yield Gpu("NVIDIA", line.partition(":")[2].partition("(")[0].strip(), "nvidia-smi", "nvidia")


def _path(root: Path, node: Path) -> str:
    return str(Path("/") / node.relative_to(root))


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
