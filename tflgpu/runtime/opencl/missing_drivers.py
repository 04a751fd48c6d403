"""Advice for a machine with GPUs that have no OpenCL driver, or with none at all: one command for each maker."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tflgpu.errors import install_command


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


# The distributions by their names in /etc/os-release.
INSTALL = {
    "debian": "sudo apt install",
    "fedora": "sudo dnf install",
    "arch": "sudo pacman -S",
    "suse": "sudo zypper install",
    "alpine": "sudo apk add",
}
FAMILIES = {"ubuntu": "debian", "rhel": "fedora", "centos": "fedora", "opensuse": "suse"}

# Packages by GPU or "CPU", and by distribution, as far as they are known.
PACKAGES = {
    "CPU": {"debian": "pocl-opencl-icd", "fedora": "pocl", "arch": "pocl", "suse": "pocl", "alpine": "pocl"},
    "NVIDIA": {"debian": "nvidia-opencl-icd", "fedora": "xorg-x11-drv-nvidia-cuda", "arch": "opencl-nvidia"},
    "Intel": {"debian": "intel-opencl-icd", "fedora": "intel-compute-runtime", "arch": "intel-compute-runtime"},
    "AMD": {"debian": "mesa-opencl-icd", "fedora": "rocm-opencl", "arch": "rocm-opencl-runtime"},
    "Mesa": {"debian": "mesa-opencl-icd", "fedora": "mesa-libOpenCL", "arch": "opencl-mesa", "suse": "Mesa-libOpenCL"},
}

# Drivers of Mesa's rusticl, which are off unless this variable names them, by the kernel's drivers.
RUSTICL = {"amdgpu": "radeonsi", "panfrost": "panfrost", "panthor": "panfrost", "msm": "freedreno"}

OWN_LIBRARIES = {
    "Mali": "the board maker's libmali (`sudo apt install libmali-g610-x11` on Ubuntu for Rockchip's RK3588)",
    "Adreno": "Qualcomm's libOpenCL_adreno.so.1 from the board maker's packages",
    "PowerVR": "libPVROCL.so.1 from the board maker's packages",
}

NO_OPENCL_IN_WSL = (
    "NVIDIA's driver for Windows' subsystem for Linux has no OpenCL (https://github.com/microsoft/WSL/issues/6951)"
)

CONTAINER = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
CONTAINER_FILES = (".dockerenv", "run/.containerenv")
CONTAINER_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")


@dataclass(frozen=True)
class Machine:
    """The facts of a machine on which advice depends.

    faults: what is wrong with the libraries that may be the driver of a maker's GPUs. chosen: the environment variable
    by which the user has chosen the drivers. root: of the file system. architecture: of the CPU.
    """

    faults: Callable[[str], Sequence[str]]
    chosen: str | None
    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    architecture: str = field(default_factory=platform.machine)

    def cpu_advice(self) -> str:
        """How to get a CPU runtime."""
        if sys.platform != "linux":
            return "install a CPU runtime: `conda install --channel conda-forge pocl`"
        if self.architecture != "x86_64":
            what = f"install a CPU runtime, of which PyPI has no wheel for {self.architecture}"
            return f"{what}: {self._install('CPU')}"
        return f"install a CPU runtime with {install_command('cpu')}"

    def gpu_advice(self, missing: Iterable[Gpu]) -> list[str]:
        """Return a sentence for each maker of GPUs that have no OpenCL driver: which GPU, and what helps.

        Args:
            missing: These GPUs.
        """
        by_maker: dict[str, list[Gpu]] = {}
        for gpu in missing:
            by_maker.setdefault(gpu.maker, []).append(gpu)
        return list(map(self._sentence, by_maker.values()))

    def _sentence(self, missing: Sequence[Gpu]) -> str:
        gpu = missing[0]
        more = f" and {len(missing) - 1} more have" if len(missing) > 1 else " has"
        return f"{gpu.name} ({gpu.node}){more} no OpenCL driver that works: {self._advice(gpu)}"

    def _advice(self, gpu: Gpu) -> str:
        node = self.root / gpu.node.lstrip("/")
        if self.chosen:
            return f"unset {self.chosen}, which is {self.environment[self.chosen]!r} and leaves it out"
        if node.exists() and not os.access(node, os.R_OK | os.W_OK):
            return f"you may not open it; `sudo usermod -aG {_group(node)} $USER`, then log in again"
        faults = self.faults(gpu.maker)
        if faults and gpu.maker == "NVIDIA":
            return "; ".join((*faults, "its version must be the one that `nvidia-smi` tells"))
        return "; ".join((self._driver(gpu), *faults))

    def _driver(self, gpu: Gpu) -> str:
        """How to get a GPU's driver."""
        rusticl = RUSTICL.get(gpu.kernel_driver)
        if gpu.maker in OWN_LIBRARIES and not rusticl:
            return f"install {OWN_LIBRARIES[gpu.maker]}"
        if gpu.maker == "NVIDIA":
            if (self.root / "dev/dxg").exists():
                return NO_OPENCL_IN_WSL
            if gpu.kernel_driver == "nouveau":
                return "install NVIDIA's own driver in place of nouveau, which computes nothing"
            if self._is_container():
                return f"start the container with `docker run --gpus all --env {CONTAINER}`"
            if package := self._ubuntu_package():
                return f"`{INSTALL['debian']} {package}`"
        command = self._install("Mesa" if gpu.maker in OWN_LIBRARIES else gpu.maker)
        return f"{command}, and set RUSTICL_ENABLE={rusticl}" if rusticl and "mesa" in command.lower() else command

    def _is_container(self) -> bool:
        """Whether this is a container, whose image has no modules of the running kernel."""
        named = any(name in self.environment for name in CONTAINER_VARIABLES)
        if named or any((self.root / file).exists() for file in CONTAINER_FILES):
            return True
        return not (self.root / "lib/modules" / platform.release()).is_dir()

    def _install(self, key: str) -> str:
        """Return the command of this distribution, or else what another one has."""
        for name in (self._os_release.get("ID", ""), *self._os_release.get("ID_LIKE", "").split()):
            family = FAMILIES.get(name, name)
            if package := PACKAGES[key].get(family):
                return f"`{INSTALL[family]} {package}`"
        return f"install what Debian's package `{PACKAGES[key]['debian']}` has"

    def _ubuntu_package(self) -> str | None:
        """Ubuntu has a package for each version of NVIDIA's driver."""
        try:
            version = (self.root / "proc/driver/nvidia/version").read_text()
        except OSError:
            return None
        found = re.search(r"Kernel Module.*?\s(\d+)\.\d", version)
        return f"libnvidia-compute-{found[1]}" if found and self._os_release.get("ID") == "ubuntu" else None

    @cached_property
    def _os_release(self) -> dict[str, str]:
        try:
            text = (self.root / "etc/os-release").read_text()
        except OSError:
            return {}
        return {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in text.splitlines())}


def _group(node: Path) -> str:
    try:
        return node.group()
    except (KeyError, OSError):  # a group that this system has no name for
        return "render"
