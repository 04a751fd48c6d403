"""The program that measures a device."""

from __future__ import annotations

from tflgpu.codegen.environment import environment
from tflgpu.target import Limits
from tflgpu.target.probes import ProbeProgram

GROUP = 128  # work-items
CHAINS = 8  # sums of a work-item that do not wait for one another
LOADS = 4  # of a work-item in a step
LOCAL_VEC4S = GROUP * LOADS
VEC4_BYTES = 16
WIDTHS = (1, 4, 16)  # of vectors


def probe_program(limits: Limits, *, ptx: bool, matrix_units: bool) -> ProbeProgram:
    """The kernels that :mod:`tflgpu.runtime.opencl.probing` launches, for a device.

    ptx: whether its compiler takes PTX. matrix_units: whether it has those of :mod:`tflgpu.kernels.mma`.
    """
    group = min(GROUP, 1 << limits.work_group_size.bit_length() - 1)
    names = ["probes/arithmetic", "probes/memory"]
    if ptx:
        names += ["ptx/grid_ptx", "executor/grid_barrier", "probes/grid_barriers"]
    if matrix_units:
        names += ["ptx/matrix_units_ptx", "ptx/multiply_matrices"]
    local = limits.local_bytes >= LOCAL_VEC4S * VEC4_BYTES
    numbers = {"local_size": group, "chains": CHAINS, "loads": LOADS, "local_vec4s": LOCAL_VEC4S}
    context = numbers | {"widths": WIDTHS, "local": local}
    texts = [_render(name, context | {"element": "float"}) for name in names]
    if limits.half_arithmetic:
        texts.append(_render("probes/arithmetic", context | {"element": "half"}))
    return ProbeProgram(
        source="\n".join(texts),
        group=group,
        widths=WIDTHS,
        chains=CHAINS,
        loads=LOADS,
        half=limits.half_arithmetic,
        local=local,
        grid_barriers=ptx,
        matrix_units=matrix_units,
    )


def _render(name: str, context: dict[str, object]) -> str:
    return environment().get_template(f"{name}.cl.j2").render(context)
