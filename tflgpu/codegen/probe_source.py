"""The program that measures a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflgpu.codegen.environment import rendered
from tflgpu.codegen.functions import Function
from tflgpu.codegen.render import prelude, render
from tflgpu.graph.ir import Graph, Node, Tensor
from tflgpu.graph.layout import LANES
from tflgpu.kernels.architecture import Trial
from tflgpu.kernels.candidates import TileConfig
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import POINTWISE
from tflgpu.plan import make_plan
from tflgpu.target import VEC4_BYTES, Limits, Target
from tflgpu.target.probes import ProbeConvolution, ProbeProgram

GROUP = 128  # work-items
CHAINS = 8  # sums of a work-item that do not wait for one another
LOADS = 4  # of a work-item in a step
LOCAL_VEC4S = GROUP * LOADS
WIDTHS = (1, 4, 16)  # of vectors
# Pixels, slices and split-K of a work-item: the smallest tile, the large ones, and the largest that two share.
CONFIGURATIONS = ((1, 1, 1), (2, 2, 1), (2, 4, 1), (4, 2, 1), (4, 4, 1), (4, 4, 2))
ROW, CHANNELS = 128, 256  # of the image that convolutions read and write; it has a row for each compute unit


def probe_program(limits: Limits, compute_units: int, *, ptx: bool, matrix_units: bool) -> ProbeProgram:
    """Return the kernels that :mod:`tflgpu.measure.probing` launches.

    Args:
        limits: The device's.
        compute_units: The device's.
        ptx: Whether its compiler takes PTX.
        matrix_units: Whether it has those of :mod:`tflgpu.kernels.mma`.
    """
    group = min(GROUP, 1 << limits.work_group_size.bit_length() - 1)
    names = ["probes/arithmetic", "probes/memory"]
    if ptx:
        names += ["ptx/grid_ptx", "executor/grid_barrier", "probes/grid_barriers"]
    if matrix_units:
        names += ["ptx/matrix_units_ptx", "ptx/multiply_matrices"]
    local = limits.local_bytes >= LOCAL_VEC4S * VEC4_BYTES
    numbers = {"local_size": group, "chains": CHAINS, "loads": LOADS, "local_vec4s": LOCAL_VEC4S}
    context = numbers | {"widths": WIDTHS, "local": local, "ptx": ptx}
    texts = [rendered(name, **context, element="float") for name in names]
    if limits.half_arithmetic:
        texts.append(rendered("probes/arithmetic", **context, element="half"))
    target = Target(family="gpu", compute_units=compute_units, storage="float", ptx=ptx, limits=limits)
    convolutions, text = _convolutions(target)
    return ProbeProgram(
        source="\n".join([*texts, text]),
        group=group,
        widths=WIDTHS,
        chains=CHAINS,
        convolutions=tuple(convolutions),
        loads=LOADS,
        half=limits.half_arithmetic,
        local=local,
        grid_barriers=ptx,
        matrix_units=matrix_units,
    )


def trial_program(trial: Trial) -> str:
    """Return the program by which :mod:`tflgpu.measure.integer_check` tries a device."""
    return "\n".join(rendered(name, **trial.context) for name in trial.templates)


def _convolutions(target: Target) -> tuple[list[ProbeConvolution], str]:
    """Return a pointwise convolution in each size of tile that the device has room for, and the source of them all."""
    shape = (1, target.compute_units, ROW, CHANNELS)
    weights = np.zeros((CHANNELS, 1, 1, CHANNELS), np.float32)
    tensors = {i: Tensor(i, "", shape) for i in (0, 2)} | {1: Tensor(1, "", weights.shape, data=weights)}
    graph = Graph(tensors, (Node("convolution", (0, 1), 2, Convolution(POINTWISE)),), (0,), (2,))
    known: list[TileConfig] = []

    def survey(_: Request, ranked: Sequence[TileConfig]) -> TileConfig:
        known.extend(ranked)
        return ranked[0]

    make_plan(graph, target, survey)
    found, functions = [], list[Function]()
    for config in (config for config in CONFIGURATIONS if config in known):
        plan = make_plan(graph, target, lambda *_, config=config: config)
        source = render(plan)
        place = next(i for i, planned in enumerate(plan.kernels) if planned.node.kind == "convolution")
        kernel, name = plan.kernels[place].kernel, source.names[place]
        functions += (function for function in source.functions if function.name == name)
        products = kernel.macs // (LANES * LANES)
        found.append(ProbeConvolution(*config, name, kernel.tiles, kernel.local_size, products))
    return found, "\n".join((prelude(target), *(function.source for function in functions)))
