"""How much one model may give to the planner and to a device's compiler."""

from __future__ import annotations

from collections.abc import Iterable

from tflgpu.codegen.render import KernelSource
from tflgpu.errors import UnsupportedError
from tflgpu.graph.ir import Graph

# PoCL takes 46 ms for a kernel of 1 KB, Intel's runtime 20 ms, and 42 ms for one of 10 KB (seconds of one core of an
# EPYC). The shared models have 92 kernels at most.
MOST_KERNELS = 500

# A place in memory depends on all that are taken at the same time: 100,000 tensors take twenty times as long as 10,000.
MOST_LAUNCHES = 20_000


def check_graph_size(graphs: Iterable[Graph]) -> None:
    """Accept a model whose nodes can be planned in a minute.

    Args:
        graphs: Those of all partitions on the device.

    Raises:
        UnsupportedError: It has more.
    """
    launches = sum(not node.in_place for graph in graphs for node in graph.nodes)
    if launches > MOST_LAUNCHES:
        raise UnsupportedError((f"it takes {launches} launches of kernels, and at most {MOST_LAUNCHES} are planned",))


def check_program_size(sources: Iterable[KernelSource]) -> None:
    """Accept a model whose kernels a CPU's runtime compiles in a minute.

    Args:
        sources: Those of all partitions on the device.

    Raises:
        UnsupportedError: It has more different kernels.
    """
    kernels = sum(len(source.functions) for source in sources)
    if kernels > MOST_KERNELS:
        raise UnsupportedError(
            (
                f"it takes {kernels} different kernels, and at most {MOST_KERNELS} are compiled; "
                "Options.cpu_part.operators leaves operators to the CPU",
            )
        )
