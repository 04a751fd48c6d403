"""OpenCL C and device binaries -> programs and kernels.

NVIDIA's OpenCL driver calls PTX a program's binary: text that it compiles at every load. It takes a cubin as well, and
the CUDA driver, which comes with the same package, links one from PTX without any toolkit.

pyopencl's own Program would warn of remarks of a compiler that succeeded, and silencing that means to change the
process's warning filters, which other threads see. Its Kernel would keep Python code in a database below the home
directory. So both are told to do less here.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, cast

import numpy as np
import pyopencl as cl

from tflgpu.errors import BuildError
from tflgpu.runtime.opencl.description import language_of, language_of_atomics
from tflgpu.runtime.opencl.process import starts_threads
from tflgpu.runtime.opencl.quirks import Driver, compiler_options, prelude, with_advice

CUDA_LIBRARY = "libcuda.so.1"

INPUT_PTX = 1  # CU_JIT_INPUT_PTX
SPLIT_COMPILE = 34  # CU_JIT_SPLIT_COMPILE: the number of threads that optimize functions; 0 is all


def link_ptx(texts: Sequence[bytes], device: cl.Device) -> bytes | None:
    """Return one cubin of PTX texts; None if they are no PTX, or the driver cannot make one.

    Args:
        texts: Parts of one program.
        device: An NVIDIA GPU.
    """
    if not all(b".target sm_" in ptx[:4096] for ptx in texts):
        return None
    try:
        cuda = _Cuda(ctypes.CDLL(CUDA_LIBRARY))
        with cuda.context(device):
            return cuda.link(texts)
    except (OSError, AttributeError, _Failure):  # no CUDA driver, or one that does not know these functions
        return None


class _Failure(Exception):
    """A call of the CUDA driver did not return success."""


class _Cuda:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, name)(*arguments) != 0:
            raise _Failure(name)

    @contextmanager
    def context(self, device: cl.Device) -> Iterator[None]:
        """Open the primary CUDA context of an OpenCL device, current while this is open."""
        place = f"{device.pci_domain_id_nv:04x}:{device.pci_bus_id_nv:02x}:{device.pci_slot_id_nv:02x}.0"
        ordinal, context = c_int(), c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGetByPCIBusId", byref(ordinal), place.encode())
        self._call("cuDevicePrimaryCtxRetain", byref(context), ordinal)
        try:
            self._call("cuCtxPushCurrent_v2", context)
            try:
                yield
            finally:
                self._call("cuCtxPopCurrent_v2", byref(c_void_p()))
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", ordinal)

    def link(self, texts: Sequence[bytes]) -> bytes:
        if sum(ptx.count(b".entry") for ptx in texts) > 1:  # the code of a single kernel would be another, and slower
            with suppress(_Failure):  # of a driver that does not know the option
                return self._linked(texts, {SPLIT_COMPILE: 0})
        return self._linked(texts, {})

    def _linked(self, texts: Sequence[bytes], options: dict[int, int]) -> bytes:
        state, cubin, size = c_void_p(), c_void_p(), c_size_t()
        count = len(options)
        names, values = (c_int * count)(*options), (c_void_p * count)(*options.values())
        self._call("cuLinkCreate_v2", count, names, values, byref(state))
        try:
            for ptx in texts:
                text = ptx.rstrip(b"\0")  # the driver wants, and ctypes adds, one NUL
                length = c_size_t(len(text) + 1)
                self._call("cuLinkAddData_v2", state, INPUT_PTX, c_char_p(text), length, b"tflgpu", 0, None, None)
            self._call("cuLinkComplete", state, byref(cubin), byref(size))
            return ctypes.string_at(cubin, size.value)  # the linker owns the original
        finally:
            self._call("cuLinkDestroy", state)


OPENCL_C = "-cl-std=CL1.2"
NEWEST = 3  # major version of OpenCL C, for programs with sub-groups, which OpenCL C 1.2 has not

_import_lock = threading.RLock()


class Parts:
    """Several compiled programs as one, each with some of its kernels."""

    def __init__(self, programs: tuple[cl.Program, ...]) -> None:
        self.programs = programs
        self._by_kernel = {
            kernel: program
            for program in programs
            for kernel in cast(str, program.get_info(cl.program_info.KERNEL_NAMES)).split(";")
        }

    def part_with(self, kernel: str) -> cl.Program:
        """Return the program that has a kernel.

        Args:
            kernel: The function's name.

        Raises:
            LookupError: No part has it.
        """
        if kernel not in self._by_kernel:
            raise LookupError(f"no part of the program has a kernel {kernel}")
        return self._by_kernel[kernel]


Program = cl.Program | Parts


def compile_parts(context: cl.Context, text: str, parts: int, *, draft: bool) -> Parts:
    """Return the kernels of all parts of a program, compiled at the same time.

    The errors are those of :func:`compile_program`.

    Args:
        context: Of a single device.
        text: The program; ``PART`` is the number of a part in it.
        parts: Their number.
        draft: As of :func:`compile_program`.
    """
    if not starts_threads():
        return Parts(tuple(compile_program(context, text, draft=draft, part=part) for part in range(parts)))
    from concurrent.futures import ThreadPoolExecutor  # a warm start does without

    with ThreadPoolExecutor(parts, thread_name_prefix="tflgpu-part") as pool:
        pending = [pool.submit(compile_program, context, text, draft=draft, part=part) for part in range(parts)]
        return Parts(tuple(each.result() for each in pending))


def compile_program(context: cl.Context, text: str, *, draft: bool = False, part: int | None = None) -> cl.Program:
    """Compile a program for the context's device.

    Args:
        context: Of a single device.
        text: The program.
        draft: Whether to compile in less time, to slower code, where the driver has options for that.
        part: The definition of ``PART``; None to leave it undefined.

    Raises:
        BuildError: The compiler refuses the program; the error has it, and the log.
    """
    device = context.devices[0]
    program = cl._cl._Program(context, whole_text(device, text))
    options = build_options(device, text, draft=draft) + ([] if part is None else [f"-DPART={part}"])
    try:
        program._build(" ".join(options).encode())
    except cl.Error as error:
        log = str(program.get_build_info(device, cl.program_build_info.LOG))
        message = f"{device.name} could not compile generated source ({error.routine})"
        raise BuildError(with_advice(message, Driver.of(device)), text, log) from error
    return cl.Program(program)


def whole_text(device: cl.Device, text: str) -> str:
    """Return a program with what the driver's quirks ask for in front of it.

    Args:
        device: Its driver is meant.
        text: The program.
    """
    return prelude(Driver.of(device)) + text


def load_program(context: cl.Context, binary: bytes) -> cl.Program | None:
    """Return a program from a binary; None if the driver refuses it.

    Args:
        context: Of a single device.
        binary: One of :func:`binaries_of`.
    """
    try:
        program = cl._cl._Program(context, context.devices, [binary])
        program._build(b"")
        return cl.Program(program)
    except cl.Error:
        return None


def make_kernel(program: Program, name: str) -> cl.Kernel:
    """Return a kernel of a program. It may also raise pyopencl's errors.

    Args:
        program: A whole program, or one in parts.
        name: The function's name.

    Raises:
        LookupError: No part of the program has it.
    """
    _import_invoker()
    return cl.Kernel(program.part_with(name) if isinstance(program, Parts) else program, name)


def set_number(kernel: cl.Kernel, argument: int, number: np.generic) -> None:
    """Set an argument as ``kernel.set_arg`` does, without its search for the kind of argument.

    The search takes 15 us, where this takes one.

    Args:
        kernel: The kernel.
        argument: The argument's place.
        number: Of the argument's type.
    """
    getattr(kernel, "_set_arg_buf", kernel.set_arg)(argument, number.tobytes())


def binaries_of(program: Program) -> tuple[bytes, ...]:
    """Return what the driver can load instead of the source, the nearest to machine code first.

    Nothing, if it cannot load several parts as one.
    """
    # a warm start does without

    programs = program.programs if isinstance(program, Parts) else (program,)
    binaries = [cast(list[bytes], each.get_info(cl.program_info.BINARIES))[0] for each in programs]
    device, *_ = cast(list[cl.Device], programs[0].get_info(cl.program_info.DEVICES))
    cubin = link_ptx(binaries, device)
    whole = tuple(binaries) if len(binaries) == 1 else ()
    return whole if cubin is None else (cubin, *whole)


def build_options(device: cl.Device, text: str, *, draft: bool = False) -> list[str]:
    """Return the compiler's options: the language, and what the driver's quirks ask for.

    Args:
        device: Its driver is meant.
        text: The program; the functions in it decide the language.
        draft: Whether the code will be replaced.
    """
    language = OPENCL_C
    if "sub_group_" in text:
        language = f"-cl-std=CL{min(language_of(device)[0], NEWEST)}.0"
    elif "memory_scope_device" in text:
        language = f"-cl-std=CL{language_of_atomics(device)}.0"
    return [language, *compiler_options(Driver.of(device), draft=draft)]


class _InMemory(dict[Any, Any]):
    """In place of pyopencl's database, with the one method that it calls."""

    store_if_not_present = dict.setdefault


def _import_invoker() -> None:
    """Import the module that pyopencl needs for every kernel, without the database that this would open.

    The database is no use here, where kernels are launched without generated code. It takes longer to open than it
    saves, and a home directory that cannot be written would be an error. A user who has imported the module keeps it.
    """
    with _import_lock:
        given = cl._PYOPENCL_NO_CACHE
        cl._PYOPENCL_NO_CACHE = True
        try:
            from pyopencl import invoker

            if not hasattr(invoker, "invoker_cache"):
                invoker.invoker_cache = _InMemory()  # type: ignore[assignment]
        finally:
            cl._PYOPENCL_NO_CACHE = given
