"""GPUs without an OpenCL driver are named, with the command that helps; on machines that are folders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import fail, invoke
from tests.support.limited_devices import let_devices_be
from tflgpu.errors import install_command
from tflgpu.runtime.opencl import devices, driver_files, missing_drivers
from tflgpu.runtime.opencl.driver_files import Answer, Tried, chosen, library_faults
from tflgpu.runtime.opencl.missing_drivers import Machine

Write = Callable[..., Path]

DEBIAN = 'ID=debian\nNAME="Debian"\n'
UBUNTU = "ID=ubuntu\nID_LIKE=debian\n"
DRIVER_VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue Sep\n"


@pytest.fixture(autouse=True)
def _linux_without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(driver_files, "tried_libraries", tuple)
    monkeypatch.delenv(missing_drivers.VISIBLE, raising=False)


def sentences(root: Path, *found: tuple[str, str], environment: Mapping[str, str] | None = None) -> list[str]:
    variables = environment or {}
    faults = partial(library_faults, environment=variables, root=root)
    return Machine(faults, chosen(variables), root, variables).gpu_advice(
        missing_drivers.gpus_without_driver(found, root)
    )


def nvidia(write: Write) -> None:
    write("dev/nvidia0")
    write("dev/nvidiactl")
    write("proc/driver/nvidia/gpus/0000:18:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n")
    write("proc/driver/nvidia/version", DRIVER_VERSION)


def render_node(write: Write, kernel_driver: str, vendor: str = "") -> None:
    write("dev/dri/renderD128")
    write("sys/class/drm/renderD128/device/uevent", f"DRIVER={kernel_driver}\nOF_NAME=gpu\n")
    if vendor:
        write("sys/class/drm/renderD128/device/vendor", f"{vendor}\n")


def installed_system(write: Write, os_release: str) -> None:
    write("etc/os-release", os_release)
    write(f"lib/modules/{missing_drivers.platform.release()}/modules.dep")


def test_no_gpu(tmp_path: Path) -> None:
    assert sentences(tmp_path) == []


def test_nvidia_in_a_container(write: Write, tmp_path: Path) -> None:
    nvidia(write)
    (sentence,) = sentences(tmp_path)
    assert sentence == (
        "NVIDIA H200 (/dev/nvidia0) has no OpenCL driver that works: start the container with "
        "`docker run --gpus all --env NVIDIA_DRIVER_CAPABILITIES=compute,utility`"
    )
    assert sentences(tmp_path, ("NVIDIA H200", "NVIDIA CUDA")) == []


@pytest.mark.parametrize(
    ("os_release", "command"),
    [
        (DEBIAN, "`sudo apt install nvidia-opencl-icd`"),
        (UBUNTU, "`sudo apt install libnvidia-compute-580`"),
        ("ID=rocky\nID_LIKE='rhel centos fedora'\n", "`sudo dnf install xorg-x11-drv-nvidia-cuda`"),
        ("ID=manjaro\nID_LIKE=arch\n", "`sudo pacman -S opencl-nvidia`"),
        ("ID=void\n", "install what Debian's package `nvidia-opencl-icd` has"),
    ],
)
def test_nvidia_on_distributions(os_release: str, command: str, write: Write, tmp_path: Path) -> None:
    nvidia(write)
    write("dev/nvidia1")
    installed_system(write, os_release)
    (sentence,) = sentences(tmp_path)
    assert sentence == f"NVIDIA H200 (/dev/nvidia0) and 1 more have no OpenCL driver that works: {command}"


@pytest.mark.parametrize(
    ("kernel_driver", "vendor", "start", "command"),
    [
        ("i915", "0x8086", "Intel GPU", "sudo apt install intel-opencl-icd"),
        ("amdgpu", "0x1002", "AMD GPU", "sudo apt install mesa-opencl-icd`, and set RUSTICL_ENABLE=radeonsi"),
        ("nouveau", "0x10de", "NVIDIA GPU", "NVIDIA's own driver"),
        ("panthor", "", "Mali GPU", "sudo apt install mesa-opencl-icd`, and set RUSTICL_ENABLE=panfrost"),
        ("msm", "", "Adreno GPU", "RUSTICL_ENABLE=freedreno"),
        ("powervr", "", "PowerVR GPU", "libPVROCL.so.1"),
    ],
)
def test_render_nodes(kernel_driver: str, vendor: str, start: str, command: str, write: Write, tmp_path: Path) -> None:
    render_node(write, kernel_driver, vendor)
    installed_system(write, DEBIAN)
    (sentence,) = sentences(tmp_path)
    assert sentence.startswith(f"{start} (/dev/dri/renderD128) has no")
    assert command in sentence


@pytest.mark.parametrize(("node", "library"), [("mali0", "libmali"), ("kgsl-3d0", "libOpenCL_adreno.so.1")])
def test_boards(node: str, library: str, write: Write, tmp_path: Path) -> None:
    write(f"dev/{node}")
    (sentence,) = sentences(tmp_path)
    assert f"(/dev/{node})" in sentence and library in sentence
    assert sentences(tmp_path, ("Mali-G610 r0p0", "ARM Platform"), ("QUALCOMM Adreno(TM) 740", "")) == []


def test_displays_that_compute_nothing_are_no_gpus(write: Write, tmp_path: Path) -> None:
    write("dev/dri/card0")
    render_node(write, "ast", "0x1a03")
    assert sentences(tmp_path) == []


def test_nvidia_with_render_nodes_is_named_once(write: Write, tmp_path: Path) -> None:
    nvidia(write)
    render_node(write, "nvidia", "0x10de")
    assert [gpu.node for gpu in missing_drivers.gpus(tmp_path)] == ["/dev/nvidia0"]


def test_gpus_that_are_hidden_on_purpose(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia(write)
    monkeypatch.setenv(missing_drivers.VISIBLE, "0")
    assert len(sentences(tmp_path)) == 1
    monkeypatch.setenv(missing_drivers.VISIBLE, "")
    assert sentences(tmp_path) == []


def test_a_node_that_may_not_be_opened(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render_node(write, "i915", "0x8086")
    monkeypatch.setattr(missing_drivers.os, "access", lambda *_: False)
    (sentence,) = sentences(tmp_path)
    assert "you may not open it; `sudo usermod -aG " in sentence


def test_a_variable_that_leaves_the_driver_out(write: Write, tmp_path: Path) -> None:
    nvidia(write)
    (sentence,) = sentences(tmp_path, environment={"OCL_ICD_VENDORS": "/opt/vendors"})
    assert sentence.endswith("unset OCL_ICD_VENDORS, which is '/opt/vendors' and leaves it out")


def test_a_library_that_fails_is_named(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("dev/mali0")
    library = write("usr/lib/libmali.so")
    write("usr/lib/libigdrcl.so")
    other = write("usr/lib/libPVROCL.so")
    tried = (Tried(str(library), Answer(0, "crashes")), Tried(str(other), Answer(1)))
    monkeypatch.setattr(driver_files, "tried_libraries", lambda: tried)
    (sentence,) = sentences(tmp_path)
    assert sentence.endswith(f"; {library} crashes")


def test_a_library_that_an_icd_file_names_and_that_has_no_device(write: Write, tmp_path: Path) -> None:
    nvidia(write)
    library = write("usr/lib64/libnvidia-opencl.so.1")
    (sentence,) = sentences(tmp_path)
    assert sentence.endswith(
        f": {library} is there, but has no device; its version must be the one that `nvidia-smi` tells"
    )


def test_nvidia_smi_where_there_are_no_nodes(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write("bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: NVIDIA L4 (UUID: GPU-1)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(missing_drivers, "_nvidia_nodes", lambda _: [])
    assert [(g.name, g.node) for g in missing_drivers.gpus() if g.maker == "NVIDIA"] == [("NVIDIA L4", "nvidia-smi")]


def test_a_cpu_runtime_by_machine(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def advice(architecture: str) -> str:
        return Machine(lambda _: [], None, tmp_path, {}, architecture).cpu_advice()

    installed_system(write, DEBIAN)
    assert advice("x86_64") == f"install a CPU runtime with {install_command('cpu')}"
    command = "`sudo apt install pocl-opencl-icd`"
    assert advice("aarch64") == f"install a CPU runtime, of which PyPI has no wheel for aarch64: {command}"
    write("etc/os-release", "ID=fedora\n")
    assert "`sudo dnf install pocl`" in advice("aarch64")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "conda-forge pocl" in advice("arm64")


SENTENCE = "NVIDIA H200 (/dev/nvidia0) has no OpenCL driver that works: install it"


@pytest.fixture
def idle_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "idle_gpus", lambda _: [SENTENCE])
    monkeypatch.setattr("tflgpu.cli.commands.devices.idle_gpus", lambda _: [SENTENCE])
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    devices._warn_of_idle_gpus.cache_clear()


@pytest.fixture
def only_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = tuple(device for device in tflgpu.devices() if device.type == "cpu")
    if not cpus:
        pytest.skip("no CPU runtime is installed")
    let_devices_be(monkeypatch, *cpus)


@pytest.mark.device
def test_a_cpu_that_nobody_asked_for_is_a_warning_once(
    idle_gpu: None, only_cpus: None, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.warns(tflgpu.DeviceWarning, match="NVIDIA H200 .* TFLGPU_DEVICE=cpu") as caught:
        assert devices.choose("auto").type == "cpu"
    assert caught[0].filename == __file__
    recwarn.clear()
    devices.choose("auto")
    devices._warn_of_idle_gpus.cache_clear()
    devices.choose("cpu")
    monkeypatch.setenv(devices.VARIABLE, "cpu")
    devices.choose("auto")
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.device
def test_errors_name_the_gpu(idle_gpu: None, only_cpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tflgpu.DeviceError, match=r"no OpenCL device matches 'gpu'.*NVIDIA H200"):
        devices.choose("gpu")
    let_devices_be(monkeypatch)
    with pytest.raises(tflgpu.DeviceError, match=r"no OpenCL device was found; install a CPU runtime.*NVIDIA H200"):
        devices.choose("auto")


@pytest.mark.device
def test_the_command_names_the_gpu(idle_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke("devices")
    assert result.exit_code == 0
    assert SENTENCE in result.stderr
    let_devices_be(monkeypatch)
    assert SENTENCE in fail("devices")
