"""Makers' OpenCL compilers of Debian, which compile without the device: what they say of kernels."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml

from tests.drivers.debian import fetch, inside

RELEASE = "sid"


@dataclass(frozen=True)
class CompiledKernel:
    """What a compiler says of a kernel.

    registers: of 32 bits, of a work-item. spilled: bytes of registers that a work-item keeps in memory. private: bytes
    of its arrays in memory. local_bytes: of a work-group. width: work-items that run in step. occupancy: waves at once
    on a SIMD unit; None where the compiler does not say.
    """

    name: str
    registers: int
    spilled: int
    private: int
    local_bytes: int
    width: int
    occupancy: int | None

    @property
    def template(self) -> str:
        """The template that it was made from, as gpu_convolution."""
        return self.name.rpartition("_")[0]


class OfflineCompiler(Protocol):
    """A compiler in a folder of unpacked packages."""

    packages: Sequence[str]

    def compile(self, root: Path, source: Path, chip: str) -> list[CompiledKernel]:
        """Compile a file of OpenCL C. Raises ValueError with the compiler's words if it refuses."""


class Intel:
    """Intel's ocloc, for Iris Xe and Arc."""

    packages = ("intel-ocloc", "libigdfcl2", "libigc2")
    register_bytes = 32  # of a thread, which has as many work-items as its SIMD width

    def compile(self, root: Path, source: Path, chip: str) -> list[CompiledKernel]:
        """See :class:`OfflineCompiler`."""
        (ocloc,) = (root / "usr/bin").glob("ocloc-*")
        work = source.parent
        common = [str(ocloc), "compile", "-file", str(source), "-device", chip]
        _run(root, [*common, "-out_dir", str(work), "-output", source.stem, "-options", "-cl-std=CL1.2"])
        (binary,) = work.glob(f"{source.stem}*.bin")
        dump = work / f"{source.stem}.dump"
        _run(root, [str(ocloc), "disasm", "-file", str(binary), "-device", chip, "-dump", str(dump)])
        return [self._kernel(facts) for facts in yaml.safe_load((dump / ".ze_info").read_text())["kernels"]]

    def _kernel(self, facts: dict[str, object]) -> CompiledKernel:
        execution = facts["execution_env"]
        buffers = facts.get("per_thread_memory_buffers", [])
        assert isinstance(execution, dict) and isinstance(buffers, list)
        width = execution["simd_size"]
        sizes = {buffer.get("usage"): buffer["size"] for buffer in buffers}
        return CompiledKernel(
            str(facts["name"]),
            execution["grf_count"] * self.register_bytes // 4 // width,
            sizes.get("spill_fill_space", execution.get("spill_size", 0)) // width,
            sizes.get("private_space", 0) // width,
            execution.get("slm_size", 0),
            width,
            None,
        )


class Amd:
    """LLVM for AMD's GPUs with the device libraries of ROCm, with the options of its OpenCL runtime."""

    packages = ("clang-21", "lld-21", "rocm-device-libs-21")

    def compile(self, root: Path, source: Path, chip: str) -> list[CompiledKernel]:
        """See :class:`OfflineCompiler`."""
        (clang,) = root.glob("usr/lib/llvm-*/bin/clang")
        (libraries,) = root.glob("usr/lib/llvm-*/lib/clang/*/amdgcn/bitcode")
        assembly = source.with_suffix(".s")
        options = ["-x", "cl", "-cl-std=CL2.0", "-O3", "-w", "-target", "amdgcn-amd-amdhsa", f"-mcpu={chip}"]
        options += ["-mllvm", "-amdgpu-internalize-symbols", "-mllvm", "-amdgpu-early-inline-all"]
        options += ["-Xclang", "-finclude-default-header", f"--rocm-device-lib-path={libraries}"]
        _run(root, [str(clang), *options, "-S", "-o", str(assembly), str(source)])
        text = assembly.read_text()
        (found,) = re.findall(r"\.amdgpu_metadata\n(.*?)\.\.\.\s*\.end_amdgpu_metadata", text, flags=re.DOTALL)
        waves = _occupancies(text)
        return [self._kernel(facts, waves) for facts in yaml.safe_load(found)["amdhsa.kernels"]]

    def _kernel(self, facts: dict[str, int | str], waves: dict[str, int]) -> CompiledKernel:
        name, spilled = str(facts[".name"]), int(facts[".vgpr_spill_count"])
        private = int(facts[".private_segment_fixed_size"])
        return CompiledKernel(
            name,
            int(facts[".vgpr_count"]),
            4 * spilled,
            max(0, private - 4 * spilled),
            int(facts[".group_segment_fixed_size"]),
            int(facts[".wavefront_size"]),
            waves.get(name),
        )


def fetch_compilers(folder: Path) -> None:
    """Download and unpack all compilers. Raises what :func:`tests.drivers.debian.fetch` raises."""
    fetch(RELEASE, [*Intel.packages, *Amd.packages], folder / "offline")


def compilers_root(folder: Path) -> Path:
    """Where :func:`fetch_compilers` unpacks."""
    return folder / "offline" / RELEASE / "root"


def _occupancies(assembly: str) -> dict[str, int]:
    """Waves of a SIMD unit by kernel: comments after each function."""
    found: dict[str, int] = {}
    name = ""
    for line in assembly.splitlines():
        if label := re.match(r"^(\w+):\s+; @\w+", line):
            name = label[1]
        elif number := re.match(r"^; Occupancy: (\d+)", line):
            found[name] = int(number[1])
    return found


def _run(root: Path, command: Sequence[str]) -> None:
    done = subprocess.run(inside(root, command), capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise ValueError(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-4000:]}")
