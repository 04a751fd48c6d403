"""Make PoCL's wheel work on a CPU that is younger than its compiler: ``python -m tests.support.pocl_cpu``.

PoCL 3.0, the newest on PyPI, asks its LLVM for the CPU's name and passes it on to clang. Its LLVM calls every CPU that
it does not know (AMD's Zen 4 and 5, for instance) "generic", and clang refuses that: "unknown target CPU 'generic'". No
option sets the name. Where a hypervisor hides the model of a Zen 4, LLVM calls it "znver3", a CPU without AVX-512, but
PoCL passes on that it has AVX-512: such programs cannot be read from PoCL's cache, and some crash the compiler.

This script changes the function ``pocl_get_llvm_cpu_name`` of the library in the current environment: it then returns
the name of an older CPU with the same vector registers, for which PoCL's own functions were compiled too. Nothing is
changed where PoCL knows the CPU, where the CPU has no AVX2, or where the library is not the one expected.

See https://github.com/pocl/pocl/issues/1049.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pyopencl

# The flags of /proc/cpuinfo that a CPU of this name has, by which PoCL chooses among its own functions.
NAMES = {
    "skylake-avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "haswell": {"avx2", "fma"},
}
# lea rdi, [rdx + 1], the last instruction that is replaced. Behind it the function copies rbx bytes from rbp to a new
# string of rdi bytes.
LAST = bytes.fromhex("488d7a01")
# Offsets in the function: its call of LLVM, its call of malloc, a branch that becomes unreachable.
BEGIN, JOINED, UNUSED = 6, 26, 64
SIZE = 96
NAMES_OF_DEVICES = """
import pyopencl
for platform in pyopencl.get_platforms():
    print(*(device.version.rpartition("-")[2] for device in platform.get_devices()))
"""


def pocl_library() -> Path | None:
    """PoCL as the wheel of pyopencl brings it."""
    return next((Path(pyopencl.__file__).parent / ".libs").glob("libpocl-*.so"), None)


def is_unusable_name(name: str | None) -> bool:
    """Whether a PoCL device has a CPU's name that its compiler does not take, or one without the CPU's registers."""
    run = subprocess.run([sys.executable, "-c", NAMES_OF_DEVICES], capture_output=True, text=True, check=True)
    found = set(run.stdout.split())
    return "generic" in found or ("znver3" in found and name == "skylake-avx512")


def function_offset(library: Path) -> int:
    """Where in the file ``pocl_get_llvm_cpu_name`` begins: the library's first segment is mapped from its beginning."""
    loaded = ctypes.CDLL(str(library))
    function = ctypes.cast(loaded.pocl_get_llvm_cpu_name, ctypes.c_void_p).value
    with open("/proc/self/maps") as maps:
        base = next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(str(library)))
    assert function is not None
    return function - base


def name_of_cpu() -> str | None:
    """The first of ``NAMES`` that this CPU could have; None if there is none."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set[str]())
    return next((name for name, needed in NAMES.items() if needed <= flags), None)


def patched(code: bytes, name: str) -> bytes | None:
    """The function with the name as a constant; None if it is another function than expected."""
    if code[BEGIN : BEGIN + 1] != b"\xe8" or code[JOINED - 4 : JOINED] != LAST:
        return None
    text, length = name.encode() + b"\0", len(name)
    load_name = b"\x48\x8d\x2d" + (UNUSED - BEGIN - 7).to_bytes(4, "little")  # lea rbp, [rip + ...]
    sizes = b"\xbb" + length.to_bytes(4, "little") + b"\xbf" + (length + 1).to_bytes(4, "little")  # mov ebx; mov edi
    replaced = (load_name + sizes).ljust(20, b"\x90")
    return code[:BEGIN] + replaced + code[BEGIN + 20 : UNUSED] + text + code[UNUSED + len(text) :]


def main() -> None:
    library, name = pocl_library(), name_of_cpu()
    if library is None or name is None or not is_unusable_name(name):
        return
    data = bytearray(library.read_bytes())
    offset = function_offset(library)
    code = patched(bytes(data[offset : offset + SIZE]), name)
    if code is None:
        print(f"{library} is not the library that this script knows; PoCL will not compile anything here")
        return
    data[offset : offset + SIZE] = code
    library.unlink()  # who has the old file mapped keeps it
    library.write_bytes(data)
    print(f"{library} now names this CPU {name}")


if __name__ == "__main__":
    main()
