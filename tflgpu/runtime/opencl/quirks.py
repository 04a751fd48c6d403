"""Faults and oddities of OpenCL drivers, and what is done about each: the one place to look at, and to add to.

A work-round that needs more than a rank, a compiler option or a word to the user stands where the code is that it
changes; its record here says where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyopencl as cl

from tflgpu.errors import install_command
from tflgpu.target import Limits

# fma adds a product's rounding error, which products of halves of the digits tell. sin and cos are those of multiples
# of pi, which every libclc has; two floats hold 1 / pi, so that a large number keeps its place in the circle.
MISSING_FUNCTIONS = """
#define DEFINE_FMA(n) \\
  float##n __attribute__((overloadable)) fma_of_halves(float##n x, float##n y, float##n z) { \\
    const float##n product = x * y; \\
    const float##n x0 = as_float##n(as_int##n(x) & ~0xfff), y0 = as_float##n(as_int##n(y) & ~0xfff); \\
    const float##n x1 = x - x0, y1 = y - y0; \\
    return product + z + (x0 * y0 - product + x0 * y1 + x1 * y0 + x1 * y1); \\
  }
DEFINE_FMA()
DEFINE_FMA(4)
DEFINE_FMA(16)
#define fma fma_of_halves
#define DEFINE_CIRCULAR(name, n) \\
  float##n __attribute__((overloadable)) name##_of_radians(float##n x) { \\
    const float##n halves = x * 0.31830987f; \\
    const float##n rest = fma(x, (float##n)(0.31830987f), -halves) + x * 1.2841276e-8f; \\
    return name##pi(halves - 2.0f * rint(0.5f * halves) + rest); \\
  }
DEFINE_CIRCULAR(sin, 4)
DEFINE_CIRCULAR(sin, 16)
DEFINE_CIRCULAR(cos, 4)
DEFINE_CIRCULAR(cos, 16)
#define sin sin_of_radians
#define cos cos_of_radians
"""

# Sixteen halves at any multiple of 8 bytes, as four times four.
UNALIGNED_HALVES = """
float16 load_unaligned_halves(__global const half *p) {
  return (float16)(vloada_half4(0, p), vloada_half4(1, p), vloada_half4(2, p), vloada_half4(3, p));
}
void store_unaligned_halves(float16 v, __global half *p) {
  vstorea_half4(v.s0123, 0, p);
  vstorea_half4(v.s4567, 1, p);
  vstorea_half4(v.s89ab, 2, p);
  vstorea_half4(v.scdef, 3, p);
}
#undef vload_half16
#undef vstore_half16
#define vload_half16(offset, p) load_unaligned_halves((p) + 16 * (offset))
#define vstore_half16(v, offset, p) store_unaligned_halves((v), (p) + 16 * (offset))
"""

INTEL = "Intel(R) OpenCL"
NVIDIA = "NVIDIA CUDA"
POCL = "Portable Computing Language"
OCLGRIND = "Oclgrind"
RUSTICL = "rusticl"

UNLIMITED = Limits().loop_turns


@dataclass(frozen=True)
class Driver:
    """Facts that tell quirks: the platform's name, the versions of device and driver as OpenCL reports them.

    can_round_division: whether its compiler has an option for correctly rounded division in single precision.
    device_name: as OpenCL reports it, too.
    """

    platform: str
    device_version: str
    driver_version: str
    can_round_division: bool = False
    device_name: str = ""

    @property
    def version(self) -> tuple[int, ...]:
        """The first two numbers of the driver's version."""
        return tuple(int(number) for number in re.findall(r"\d+", self.driver_version)[:2])

    @property
    def is_llvmpipe(self) -> bool:
        """Whether this is Mesa's software rasterizer."""
        return self.platform == RUSTICL and self.device_name.startswith("llvmpipe")

    @classmethod
    def of(cls, device: cl.Device) -> Driver:
        """Return the driver of a device."""
        rounds = bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)
        platform, version, driver = map(str.strip, (device.platform.name, device.version, device.driver_version))
        return cls(platform, version, driver, rounds, device.name.strip())


@dataclass(frozen=True)
class Quirk:
    """One fault of some drivers.

    concerns: whether a driver has it. fault: what is wrong. remedy: what is done about it, and where. source: a link,
    or what has shown it. demotion: devices with a greater one come after all others, by default. options: for the
    driver's compiler. draft_options: more of them, for code that will be replaced. prelude: OpenCL C in front of every
    program. family: of the faster kernels, where the device's type does not tell. loop_turns, little_work: as
    :class:`tflgpu.target.Limits` has them. keeps_context: whether a process keeps its first context. compiler_stays:
    whether compilers run in processes of their own. wakes_slowly: whether threads do. may_linger: whether work-groups
    may look for the next run. is_simulator: whether only its number or a part of its name means it.
    advice: what to tell the user when such a device fails.
    """

    name: str
    concerns: Callable[[Driver], bool]
    fault: str
    remedy: str
    source: str
    demotion: int = 0
    options: tuple[str, ...] = ()
    draft_options: tuple[str, ...] = ()
    prelude: str = ""
    family: Literal["cpu", "gpu"] | None = None
    loop_turns: int = UNLIMITED
    keeps_context: bool = False
    compiler_stays: bool = False
    wakes_slowly: bool = False
    may_linger: bool = False
    little_work: int = 0
    is_simulator: bool = False
    advice: str = ""


QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "simulator",
        lambda driver: driver.platform == OCLGRIND,
        fault="Oclgrind is a simulator, far slower than any device, and calls itself both a CPU and a GPU",
        remedy="it comes after every real device, and no type of device means it",
        source="https://github.com/jrprice/Oclgrind",
        demotion=2,
        is_simulator=True,
    ),
    Quirk(
        "unknown CPU",
        # On ARM "generic" is a name that clang takes.
        lambda driver: driver.platform == POCL and bool(re.search("x86_64.*-generic$", driver.device_version)),
        fault="PoCL's LLVM does not know the CPU (AMD's Zen 4 and 5 with the wheel of PyPI), calls it 'generic', and "
        "clang refuses that: nothing can be compiled",
        remedy="it comes after every device that works, and errors say what to install",
        source="https://github.com/pocl/pocl/issues/1049",
        demotion=3,
        advice="this PoCL does not know the CPU and cannot compile for it: install Intel's runtime with "
        f"{install_command('cpu')}, or a newer PoCL",
    ),
    Quirk(
        "software rasterizer",
        lambda driver: driver.is_llvmpipe,
        fault="llvmpipe calls itself a CPU, but makes vectors of work-items as GPUs do; no runtime for CPUs is slower",
        remedy="it comes after every other CPU, and gets the kernels for GPUs",
        source="Mesa 22.3.6: 55 ms instead of 692 for face_landmark, 26.2.6: 18 instead of 25",
        demotion=1,
        family="gpu",
    ),
    Quirk(
        "65,535 turns of loops",
        lambda driver: driver.is_llvmpipe and driver.version < (25, 0),
        fault="a work-item leaves its loops, without an error, after 65,535 turns of all of them together",
        remedy="tiles of the kernels for CPUs have so few pieces of work (tflgpu/kernels/tiling.py); a softmax of more "
        "than 87,000 elements, or a sum of 262,000 products, is one piece of work, and stays wrong",
        source="Mesa 22.3.6 of Debian 12, not 25.0.7: face_landmark was 6% off with the kernels for CPUs",
        loop_turns=65535,
    ),
    Quirk(
        "empty prefetch",
        lambda driver: driver.platform == INTEL,
        fault="prefetch() is a call of a function that does nothing",
        remedy="it is the compiler's own instruction in every program",
        source="the assembly of version 2026.22",
        prelude="#define prefetch(line, items) __builtin_prefetch((const void *)(size_t)(line), 0, 2)\n",
    ),
    Quirk(
        "functions missing",
        lambda driver: driver.platform == RUSTICL and driver.version >= (26, 0),
        fault="a program with sin, cos or fma is refused where LLVM's libclc 22 is unpatched: 'not fully linked'",
        remedy="functions in front of every program compute them by what is there",
        source="Mesa 26.2.6 of Debian; https://github.com/llvm/llvm-project/pull/207264",
        prelude=MISSING_FUNCTIONS,
    ),
    Quirk(
        "conversions left out",
        lambda driver: driver.platform == RUSTICL and driver.version >= (26, 0),
        fault="a float that is stored in half and loaded again is not rounded, not even through volatile memory",
        remedy="templates/access/storage.cl.j2 rounds to half without halves",
        source="Mesa 26.2.6, not 25.0.7",
    ),
    Quirk(
        "masks of longs",
        lambda driver: driver.platform == RUSTICL and driver.version < (25, 0),
        fault="select takes a mask of longs that was converted from one of ints for zeros",
        remedy="templates/access/wide_ops.cl.j2 compares it again",
        source="Mesa 22.3.6, not 25.0.7",
    ),
    Quirk(
        "no clock",
        lambda driver: driver.platform == RUSTICL and driver.version < (25, 0),
        fault="time stamps of kernels are a few nanoseconds, whatever they take",
        remedy="runtime/opencl/clock.py takes the host's time where a device says that its timer has no resolution",
        source="Mesa 22.3.6, not 25.0.7",
    ),
    Quirk(
        "aligned halves",
        lambda driver: driver.platform == POCL and "x86_64" in driver.device_version,
        fault="vload_half16 and vstore_half16 may use instructions that fail at an address that is no multiple of 16, "
        "where OpenCL asks for a multiple of 2",
        remedy="functions in front of every program access four times four halves",
        source="PoCL 3.0 and 5.0 on CPUs with AVX-512: vmovaps in the machine code, a segmentation fault",
        prelude=UNALIGNED_HALVES,
    ),
    Quirk(
        "loads repeated",
        lambda driver: driver.platform == POCL and driver.version >= (7, 0),
        fault="a value of local memory that is needed behind a barrier is loaded again there, when others have written",
        remedy="templates/access/group_reduce.cl.j2 loads the result of a reduction as volatile",
        source="PoCL 7.1, not 6.0; https://github.com/pocl/pocl/issues/2069 may be the same",
    ),
    Quirk(
        "empty copies",
        lambda driver: driver.platform == POCL and driver.version >= (6, 0),
        fault="a copy of no bytes is an INVALID_VALUE, as OpenCL before 2.1 has it",
        remedy="runtime/opencl/session.py enqueues none",
        source="PoCL 6.0 and 7.1, not 3.0",
    ),
    Quirk(
        "rough division",
        lambda driver: driver.can_round_division,
        fault="a division may be 2.5 units in the last place off, as OpenCL allows",
        remedy="the compiler's option for correct rounding, where it has one",
        source="https://registry.khronos.org/OpenCL/specs/3.0-unified/html/OpenCL_C.html#relative-error-as-ulps",
        options=("-cl-fp32-correctly-rounded-divide-sqrt",),
    ),
    Quirk(
        "late compilation",
        lambda driver: driver.platform == POCL,
        fault="a kernel is compiled at its first launch, and a binary taken before does not have it",
        remedy="runtime/opencl/build.py takes binaries once every kernel has run",
        source="2.3 s of compiling at every warm start of MobileNetV1 0.25; docs/internals/measurements/compiling.md",
    ),
    Quirk(
        "functions read again",
        lambda driver: driver.platform == POCL,
        fault="OpenCL's functions go with the last context of a process, and the next program waits for them anew",
        remedy="runtime/opencl/session.py keeps the first context of a process",
        source="a small model behind another one compiles in 0.31 (PoCL 3.0) to 0.66 s (7.1) instead of 0.10 or 0.11",
        keeps_context=True,
    ),
    Quirk(
        "compiler stays",
        lambda driver: driver.platform == INTEL,
        fault="the compiler takes 124 MB, from the first program to the end of the process",
        remedy="runtime/opencl/compiling loads it in a process of its own",
        source="an empty kernel; docs/internals/measurements/compiling.md has the figures of models",
        compiler_stays=True,
    ),
    Quirk(
        "slow awakening",
        lambda driver: driver.platform == POCL,
        fault="who waits for a kernel sleeps, and to be woken takes longer than a small model",
        remedy="runtime/executors/claiming_executor.py looks for the end of a short run, where a core is free for it",
        source="dtln takes 0.66 of the time with looks, kws 0.79 (PoCL 3.0, two cores of an EPYC)",
        wakes_slowly=True,
    ),
    Quirk(
        "slow awakening of work",
        lambda driver: driver.platform == POCL and "x86_64" in driver.device_version,
        fault="the threads that compute sleep as soon as nothing is to do, and to wake one takes 18 us",
        remedy="runtime/executors/resident.py lets a small model's work-group stay for 0.1 ms, alone for little work",
        source="dtln takes 0.54 of the time, kws 0.65 (PoCL 3.0, two cores of an EPYC)",
        may_linger=True,
        little_work=5_000_000,
    ),
    Quirk(
        "threads on one core",
        lambda driver: driver.platform == POCL,
        fault="Linux often wakes both threads of two on the same core, for milliseconds, and leaves the other one idle",
        remedy="runtime/opencl/driver_files.py lets PoCL keep each to a core, where there are two",
        source="DeepLabV3 takes 4.5 or 9 ms without; docs/internals/measurements/cpu.md",
    ),
    Quirk(
        "cache at home",
        lambda driver: driver.platform == POCL,
        fault="there is no device where PoCL cannot make its cache below the home directory",
        remedy="runtime/opencl/driver_files.py gives it a temporary folder there",
        source="PoCL 3.0 with HOME=/dev/null",
    ),
    Quirk(
        "barrier in a branch",
        lambda driver: driver.platform == POCL,
        fault="the compiler aborts where a branch that it cannot foresee follows a barrier inside a branch",
        remedy="templates/executor/persistent.cl.j2 begins every turn of its loop with one more barrier",
        source="PoCL 3.0, on the first version of that template",
    ),
    Quirk(
        "overlapping sub-buffers",
        lambda driver: driver.platform == NVIDIA,
        fault="the driver crashes in clReleaseMemObject when overlapping sub-buffers are released",
        remedy="codegen/link.py gives kernels a buffer and an offset",
        source="driver 580.159 on an H100",
    ),
    Quirk(
        "text for a binary",
        lambda driver: driver.platform == NVIDIA,
        fault="a program's binary is PTX, which is compiled again at every load: 0.31 s for MobileNetV1 on an H200",
        remedy="runtime/opencl/program.py links it to machine code, which loads in 0.4 ms; until then it is a draft",
        source="docs/internals/measurements/compiling.md",
        draft_options=("-cl-nv-opt-level=1",),
    ),
)


def quirks_of(driver: Driver) -> tuple[Quirk, ...]:
    """Return the quirks that a driver has."""
    return tuple(quirk for quirk in QUIRKS if quirk.concerns(driver))


def is_simulator(driver: Driver) -> bool:
    """Whether its devices are none."""
    return any(quirk.is_simulator for quirk in quirks_of(driver))


def demotion(driver: Driver) -> int:
    """How far after others its devices come: 0 for those without a quirk that matters there."""
    return max((quirk.demotion for quirk in quirks_of(driver)), default=0)


def compiler_options(driver: Driver, *, draft: bool = False) -> tuple[str, ...]:
    """Return options of a driver's compiler besides those that every driver gets.

    Args:
        driver: The driver.
        draft: Whether the code will be replaced.
    """
    return tuple(o for quirk in quirks_of(driver) for o in (*quirk.options, *(quirk.draft_options if draft else ())))


def prelude(driver: Driver) -> str:
    """OpenCL C to put in front of programs for it."""
    return "".join(quirk.prelude for quirk in quirks_of(driver))


def loop_turns(driver: Driver) -> int:
    """How many turns of loops a work-item may make."""
    return min((quirk.loop_turns for quirk in quirks_of(driver)), default=UNLIMITED)


def faster_family(driver: Driver) -> Literal["cpu", "gpu"] | None:
    """Return the family of the faster kernels, where the type of its devices does not tell."""
    return next((quirk.family for quirk in quirks_of(driver) if quirk.family), None)


def with_advice(message: str, driver: Driver) -> str:
    """Return an error's message, and what its user can do about a quirk.

    Args:
        message: Of the driver.
        driver: Its quirks are looked up.
    """
    return "; ".join((message, *(quirk.advice for quirk in quirks_of(driver) if quirk.advice)))
