"""OpenCL C and device binaries -> programs."""

from __future__ import annotations

import warnings
from typing import cast

import pyopencl as cl

from tflgpu.errors import BuildError
from tflgpu.runtime.opencl.cubin import link_ptx
from tflgpu.runtime.opencl.quirks import Driver, compiler_options, with_advice

OPENCL_C = "-cl-std=CL1.2"


def compile_program(context: cl.Context, text: str) -> cl.Program:
    """Compile ``text`` for the context's device.

    Raises BuildError with source and log if the compiler refuses it.
    """
    device = context.devices[0]
    program = cl.Program(context, text)
    try:
        _built(program, build_options(device))
    except cl.Error as error:
        log: str = program.get_build_info(device, cl.program_build_info.LOG)  # type: ignore[no-untyped-call]
        message = f"{device.name} could not compile generated source ({error.routine})"
        raise BuildError(with_advice(message, Driver.of(device)), text, log) from error
    return program


def load_program(context: cl.Context, binary: bytes) -> cl.Program | None:
    """A program from one of what :func:`binaries_of` gave; None if the driver refuses it."""
    try:
        return _built(cl.Program(context, context.devices, [binary]), [])
    except cl.Error:
        return None


def binaries_of(program: cl.Program) -> tuple[bytes, ...]:
    """What the driver can load instead of the source, the nearest to machine code first."""
    binaries = cast(list[bytes], program.get_info(cl.program_info.BINARIES))
    devices = cast(list[cl.Device], program.get_info(cl.program_info.DEVICES))
    cubin = link_ptx(binaries[0], devices[0])
    return (binaries[0],) if cubin is None else (cubin, binaries[0])


def build_options(device: cl.Device) -> list[str]:
    """Compiler options for a device: the language, and what its driver's quirks ask for."""
    return [OPENCL_C, *compiler_options(Driver.of(device))]


def _built(program: cl.Program, options: list[str]) -> cl.Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)  # remarks of a compiler that succeeded
        # pyopencl's cache of binaries would make cold starts look warm.
        program.build(options, cache_dir=False)  # type: ignore[arg-type]
    return program
