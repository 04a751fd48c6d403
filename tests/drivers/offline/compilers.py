"""Makers' OpenCL compilers, which compile without the device: what they say of kernels.

Those for Intel's and AMD's GPUs are packages of Debian. For NVIDIA's, LLVM of Debian makes PTX, and ptxas of a CUDA
wheel makes machine code of it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import yaml

from tests.drivers.debian import fetch, inside
from tflgpu.codegen.whole_kernels import PERSISTENT

RELEASE = "sid"
LONGEST = 3600  # seconds of one program, on a machine that does other things as well


@dataclass(frozen=True)
class CompiledKernel:
    """Facts of a kernel that a compiler reports.

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
        """The template that it was made from, as gpu_convolution; PERSISTENT for a kernel of many."""
        return PERSISTENT if self.name.startswith(PERSISTENT) else self.name.rpartition("_")[0]


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


class Nvidia:
    """LLVM's OpenCL C to PTX, and NVIDIA's assembler, which chooses registers as its OpenCL driver does.

    PTX is kept: of a source that an older chip got as well, a younger one's is made of the same.
    """

    packages = ("clang-21", "libclc-21")
    wheel = "nvidia-cuda-nvcc==13.*"  # has sm_75 and all after it
    assembler = "ptxas"

    def compile(self, root: Path, source: Path, chip: str) -> list[CompiledKernel]:
        """See :class:`OfflineCompiler`."""
        kept = root / "ptx" / sha256(source.read_bytes()).hexdigest()
        ptx = kept_ptx(kept, chip) or self._new_ptx(root, source, chip, kept)
        command = [str(root / self.assembler), f"-arch={chip}", "-v", "-o", str(source.with_suffix(".cubin")), str(ptx)]
        return [self._kernel(*found) for found in _PTXAS.findall(_run(root, command))]

    def _new_ptx(self, root: Path, source: Path, chip: str, kept: Path) -> Path:
        (clang,) = root.glob("usr/lib/llvm-*/bin/clang")
        library = root / "usr/lib/clc/nvptx64--nvidiacl.bc"
        text, ptx = source.read_text(), source.with_suffix(".ptx")
        whole = source.with_suffix(".whole.cl")
        whole.write_text(_GLOBAL_OFFSET + text)
        options = ["-x", "cl", "-cl-std=CL1.2", "-O3", "-w", "-cl-fp32-correctly-rounded-divide-sqrt", "-Dasm=__asm__"]
        options += ["-target", "nvptx64-nvidia-nvcl", "-Xclang", "-target-cpu", "-Xclang", chip]
        options += ["-Xclang", "-finclude-default-header"]
        options += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(library)]
        _run(root, [str(clang), *options, "-S", "-o", str(ptx), str(whole)])
        kept.mkdir(parents=True, exist_ok=True)
        part = kept / f"{chip}.part"
        part.write_text(_with_kernels(ptx.read_text(), _group_sizes(text)))
        return part.replace(kept / f"{chip}.ptx")

    def _kernel(self, name: str, stack: str, stores: str, facts: str) -> CompiledKernel:
        numbers = {unit: int(number) for number, unit in re.findall(r"(\d+) (registers|bytes smem)", facts)}
        spilled = int(stores)
        private = max(0, int(stack) - spilled)
        return CompiledKernel(name, numbers["registers"], spilled, private, numbers.get("bytes smem", 0), 32, None)


def fetch_compilers(folder: Path) -> None:
    """Download and unpack all compilers.

    Raises what :func:`tests.drivers.debian.fetch` raises, and CalledProcessError if pip finds no CUDA wheel.
    """
    fetch(RELEASE, sorted({*Intel.packages, *Amd.packages, *Nvidia.packages}), folder / "offline")
    wheels = folder / "offline/wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), Nvidia.wheel]
    subprocess.run(command, check=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/bin/ptxas"))
        assembler = compilers_root(folder) / Nvidia.assembler
        assembler.write_bytes(archive.read(name))
    assembler.chmod(0o755)
    shutil.rmtree(wheels)


def kept_ptx(folder: Path, chip: str) -> Path | None:
    """The latest PTX of one source that a chip takes: its own, or that of an older one."""
    fitting = [ptx for ptx in folder.glob("sm_*.ptx") if _generation(ptx.stem) <= _generation(chip)]
    return max(fitting, key=lambda ptx: _generation(ptx.stem), default=None)


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


# NVIDIA's driver keeps the offset in this register; libclc has no such function.
_GLOBAL_OFFSET = """size_t __attribute__((overloadable, const)) get_global_offset(uint dimension) {
  uint offset;
  asm("mov.b32 %0, %%envreg3;" : "=r"(offset));
  return offset;
}
"""

# Name, stack, spill stores, and the rest of what ptxas -v says of a kernel.
_PTXAS = re.compile(
    r"Compiling entry function '(\w+)'.*\n.*Function properties.*\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores"
    r".*\n(.*Used .*)"
)

_STUB = "__clang_ocl_kern_imp_"


def _generation(chip: str) -> int:
    """86 of sm_86."""
    return int(chip.removeprefix("sm_"))


def _group_sizes(source: str) -> dict[str, int]:
    """Work-items of a group by kernel."""
    found = re.findall(r"reqd_work_group_size\((\d+), 1, 1\)\)\)\s+void (\w+)\(", source)
    return {name: int(items) for items, name in found}


def _with_kernels(ptx: str, group_sizes: dict[str, int]) -> str:
    """PTX of LLVM 21 whose kernels are complete.

    LLVM 21 compiles each kernel as one of another name, and the kernel itself, which calls that one, as an empty one.
    It also drops the size of work-groups, by which ptxas bounds registers.
    """
    ptx = re.sub(r"\.entry (?!__clang)\w+\([^)]*\)\s*\{\s*\}", "", ptx)
    for name, items in group_sizes.items():
        ptx = re.sub(rf"(\.entry ){_STUB}({name}\([^)]*\))", rf"\1\2\n.reqntid {items}, 1, 1", ptx, count=1)
    return ptx


def _run(root: Path, command: Sequence[str]) -> str:
    try:
        done = subprocess.run(inside(root, command), capture_output=True, text=True, check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"{' '.join(command)}\ntook more than {LONGEST} s") from error
    if done.returncode:
        raise ValueError(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout + done.stderr
