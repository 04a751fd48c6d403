"""The work of operators grows with the size of their inputs, and no faster. It is counted, not timed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Literal

import numpy as np
import pyopencl as cl
import pytest

from tests.plan.costs.sized_models import MODELS, sized
from tests.quick import RUNTIMES
from tests.support.planning import plan_of
from tflgpu.codegen.functions import Body, Function, body_of
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.plan.plan import traffic
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import make_kernel
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target import Target

Family = Literal["cpu", "gpu"]

SIZE, TIMES = 1_024, 16

# How much more than in proportion: sorting takes log2(16,384 / 32) = 9 passes of merging in place of 5.
MORE = 2

# A step of a loop, where the turn is counted.
FOR = re.compile(r"\bfor \(([^;]*;[^;]*;)")
WHILE = re.compile(r"\bwhile \(")


@pytest.mark.parametrize("family", ["cpu", "gpu"])
def test_work_grows_with_the_size(family: Family) -> None:
    small, large = (work(family, size) for size in (SIZE, TIMES * SIZE))
    growth = {name: round(large[name] / (TIMES * small[name]), 1) for name in MODELS}
    assert {name: times for name, times in growth.items() if times > MORE} == {}


def work(family: Family, size: int) -> dict[str, int]:
    """By operator, the turns of loops of all work-items, and what planning counts: products and bytes."""
    target = Target(family=family, compute_units=4, storage="float")
    m, names = sized(size, *MODELS), list(MODELS)
    plan = plan_of(m.model, target)
    source, session = render(plan), open_session(choose(RUNTIMES[0]))
    number = {function.name: i for i, function in enumerate(source.functions)}
    functions = tuple(replace(f, body=counting(f, number[f.name])) for f in source.functions)
    begin = f"__global uint turns_of[{len(functions)}];\n__kernel void read_turns(__global uint *to)"
    begin += f" {{ for (int i = 0; i < {len(functions)}; ++i) to[i] = turns_of[i]; }}\n"
    text = replace(source, prelude=source.prelude + begin, functions=functions).text
    program = cl._cl._Program(session.context, text)
    program._build(b"-cl-std=CL3.0 -cl-opt-disable")
    program = cl.Program(program)
    LaunchExecutor(link(plan, source.names), program, session).run(m.inputs)
    turns = np.zeros(len(functions), np.uint32)
    buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, turns.nbytes)
    reader = make_kernel(program, "read_turns")
    reader.set_args(buffer)
    cl.enqueue_nd_range_kernel(session.queue, reader, (1,), (1,))
    cl.enqueue_copy(session.queue, turns, buffer)
    found = Counter[str]()
    for planned, name in zip(plan.kernels, source.names, strict=True):
        of_kernel = int(turns[number[name]]) // source.names.count(name)
        for operator in planned.node.sources[:1]:  # none of a copy from or to the host's order
            found[names[operator]] += of_kernel + planned.kernel.macs + traffic(plan, planned)
    return found


def counting(function: Function, number: int) -> Body:
    """The statements of a function that also adds the turns of its loops to its place in ``turns_of``."""
    body = WHILE.sub("while (++turns, ", FOR.sub(r"for (\1 ++turns, ", function.body.text))
    return body_of(f"uint turns = 0;\n{body}\natomic_add(&turns_of[{number}], turns);")
