"""Compile OpenCL C."""

from __future__ import annotations

import warnings

import pyopencl as cl

from tflgpu.errors import BuildError


def compile_program(context: cl.Context, text: str) -> cl.Program:
    """Compile ``text`` for the context's device.

    Raises BuildError with source and log if the compiler refuses it.
    """
    device = context.devices[0]
    program = cl.Program(context, text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)  # remarks of a compiler that succeeded
            # pyopencl's cache of binaries would make cold starts look warm.
            program.build(build_options(device), [device], cache_dir=False)  # type: ignore[arg-type]
    except cl.RuntimeError as error:
        log: str = program.get_build_info(device, cl.program_build_info.LOG)  # type: ignore[no-untyped-call]
        raise BuildError(f"{device.name} could not compile generated source ({error.routine})", text, log) from error
    return program


def build_options(device: cl.Device) -> list[str]:
    """Compiler options for a device: OpenCL C 1.2, and correctly rounded division where there is the choice."""
    options = ["-cl-std=CL1.2"]
    if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return options
