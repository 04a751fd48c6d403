"""Advice for a machine without an OpenCL driver: one command for each maker of GPUs, and for the CPU."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tflgpu.driver_advice.hardware import Gpu
from tflgpu.errors import install_command

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
