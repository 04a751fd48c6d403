"""How much one model may give to a device's compiler."""

from __future__ import annotations

from collections.abc import Iterable

from tflgpu.codegen.render import KernelSource
from tflgpu.errors import UnsupportedError

# PoCL takes 46 ms for a kernel of 1 KB, Intel's runtime 20 ms, and 42 ms for one of 10 KB (seconds of one core of an
# EPYC). The shared models have 92 kernels at most.
MOST_KERNELS = 500


def check_program_size(sources: Iterable[KernelSource]) -> None:
    """Raises UnsupportedError if a model has more different kernels than a CPU's runtime compiles in a minute."""
    kernels = sum(len(source.functions) for source in sources)
    if kernels > MOST_KERNELS:
        raise UnsupportedError(
            (
                f"it takes {kernels} different kernels, and at most {MOST_KERNELS} are compiled; "
                "Options.cpu_ops leaves operators to the CPU",
            )
        )
