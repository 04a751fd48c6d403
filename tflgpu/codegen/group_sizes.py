"""Plans for devices whose compiler allows a kernel fewer work-items than the device allows a group."""

from __future__ import annotations

from tflgpu.codegen.persistent_kernel import PERSISTENT
from tflgpu.codegen.render import render
from tflgpu.graph.ir import Graph, TensorId
from tflgpu.kernels.request import Chooser
from tflgpu.plan import Plan, make_plan
from tflgpu.target import Target


def plan_within(graph: Graph, target: Target, chooser: Chooser, *, fuse: bool = True) -> Plan:
    """A plan whose kernels keep to ``target.group_sizes``: what the device's compiler was found to allow.

    The nodes that such kernels compute get others for smaller groups, which have other names. fuse: as for
    :func:`make_plan`.
    """
    allowed = dict(target.group_sizes)
    whole = [size for name, size in allowed.items() if name.startswith(PERSISTENT)]
    if target.executor != "launch" and whole:
        target = target.with_groups(min(whole))
    narrow: dict[TensorId, int] = {}
    while True:
        plan = make_plan(graph, target, chooser, narrow, fuse=fuse)
        names = render(plan).names if allowed else ()
        planned = [(k, allowed[name]) for k, name in zip(plan.kernels, names, strict=False) if name in allowed]
        too_wide = {k.node.output: size for k, size in planned if k.kernel.local_size > size}
        if not too_wide:
            return plan
        narrow |= too_wide
