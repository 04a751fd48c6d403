"""Small models that together use every template, run where a simulator is the only OpenCL device.

``python -m tests.support.simulated FAMILY PRECISION`` runs them with the kernels of one family and prints one JSON
object: the templates that were used, and what went wrong by case. ``python -m tests.support.simulated fault NAME`` runs
a kernel that is wrong on purpose. What the simulator itself finds stands in its log. ``test_oclgrind.py`` starts both.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.kernels.gpu.ways import take_always
from tests.support import branches
from tests.support.corrections import pack_always
from tests.support.fixed_cases import fixed_cases
from tests.support.planning import plan_of
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session


def run_cases(family: Literal["cpu", "gpu"], precision: Literal["fp32", "fp16"]) -> dict[str, object]:
    """Run all cases, each tensor in a buffer of its own so that the simulator knows where it ends."""
    templates: set[str] = set()
    wrong: dict[str, str] = {}
    device = choose("Oclgrind")
    session = open_session(device)
    for name, case in fixed_cases().items():
        options = tflgpu.Options(precision=precision, execution=tflgpu.Execution(kernels=family))
        with pytest.MonkeyPatch.context() as patch:
            if name == "convolutions_of_few_channels":  # which would cost a single compute unit too much as well
                take_always(patch, "kn2row")
            if name == "packed_convolution":  # of an image that is so small that quads are faster
                pack_always(patch)
            plan = plan_of(case.model, device.target(options), options)
        templates |= {k.kernel.template for k in plan.kernels}
        source = render(plan)
        executor = LaunchExecutor(link(plan, source.names, separate=True), build(source.text, session)[0], session)
        try:
            case.check(executor.run(case.inputs), precision)
        except AssertionError as difference:
            wrong[name] = str(difference)
    return {"templates": sorted(templates), "wrong": wrong}


FAULTS = """
__kernel void writes_past_the_end(__global float *x) { x[get_global_id(0) + 1] = 1.0f; }
__kernel void reads_past_the_end(__global float *x) { x[get_global_id(0)] += x[get_global_id(0) + 1]; }
__kernel void races(__global float *x) { x[0] = (float)get_local_id(0); }
"""


def run_fault(name: str) -> None:
    """One work-group of four work-items on a buffer of four floats."""
    session = open_session(choose("Oclgrind"))
    buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.ones(4, "f4"))
    kernel = cl.Kernel(cl.Program(session.context, FAULTS).build(), name)
    kernel.set_args(buffer)
    cl.enqueue_nd_range_kernel(session.queue, kernel, (4,), (4,))
    session.queue.finish()


def main(arguments: Sequence[str]) -> None:
    if branches.FOLDER in os.environ:
        branches.count_branches()
    match arguments:
        case ["fault", name]:
            run_fault(name)
        case [("cpu" | "gpu") as family, ("fp32" | "fp16") as precision]:
            print(json.dumps(run_cases(family, precision)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
