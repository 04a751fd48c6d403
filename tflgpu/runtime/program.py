"""Compile OpenCL C."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyopencl as cl

from tflgpu.errors import BuildError


def compile_programs(context: cl.Context, texts: Sequence[str]) -> list[cl.Program]:
    """Compile all texts for the context's device, as many at a time as there are cores.

    Raises BuildError with source and log if the compiler refuses one.
    """
    device = context.devices[0]
    options = build_options(device)

    def compile_one(text: str) -> cl.Program:
        program = cl.Program(context, text)
        try:
            # tflgpu's own cache knows more than pyopencl's, which would also make cold starts look warm.
            program.build(options, [device], cache_dir=False)  # type: ignore[arg-type]
            return program
        except cl.RuntimeError as error:
            log: str = program.get_build_info(device, cl.program_build_info.LOG)  # type: ignore[no-untyped-call]
            raise BuildError(
                f"{device.name} could not compile generated source ({error.routine})", text, log
            ) from error

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)  # remarks of a compiler that succeeded
        if len(texts) == 1:
            return [compile_one(texts[0])]
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            return list(pool.map(compile_one, texts))


def build_options(device: cl.Device) -> list[str]:
    """Compiler options for a device: OpenCL C 1.2, and correctly rounded division where there is the choice."""
    options = ["-cl-std=CL1.2"]
    if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return options
