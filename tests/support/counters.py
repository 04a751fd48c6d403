"""How many elements kernels load, store and multiply: their text counts it itself while they run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.codegen.functions import Body, Function, body_of
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.plan import Plan
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.program import make_kernel
from tflgpu.runtime.opencl.session import Session

COUNTERS = ("loads", "stores", "products")

# Variables of the program, which OpenCL C 1.2 has not.
LANGUAGE = "-cl-std=CL3.0"

ACCUMULATION = re.compile(r"\b((?:acc\d+|sum)_\d+ \+= [^;]*\*)")


@dataclass(frozen=True)
class Counts:
    """Elements that a kernel loads, stores and multiplies for each element of its output, lanes of padding included."""

    template: str
    loads: float
    stores: float
    products: float


def counted(plan: Plan, inputs: Sequence[NDArray[Any]], session: Session) -> Iterator[Counts]:
    """Run a plan in fp32 for the launch executor; the counts of each kernel."""
    source = render(plan)
    number = {function.name: i for i, function in enumerate(source.functions)}
    functions = tuple(replace(f, body=_counting(f, number[f.name])) for f in source.functions)
    total = len(COUNTERS) * len(functions)
    begin = f"__global uint counts[{total}];\n__kernel void read_counts(__global uint *to)"
    begin += f" {{ for (int i = 0; i < {total}; ++i) to[i] = counts[i]; }}\n"
    for width, vector in ((1, "float"), (4, "float4")):
        begin += f"#undef load{width}_float\n#undef store{width}_float\n"
        begin += f"#define load{width}_float(p, q) (loads += {width}, ((__global const {vector} *)(p))[q])\n"
        begin += f"#define store{width}_float(v, p, q) (stores += {width}, ((__global {vector} *)(p))[q] = (v))\n"
    text = replace(source, prelude=source.prelude + begin, functions=functions).text
    program = cl._cl._Program(session.context, text)
    program._build(LANGUAGE.encode())
    program = cl.Program(program)
    LaunchExecutor(link(plan, source.names), program, session).run(inputs)
    found = np.zeros((len(functions), len(COUNTERS)), np.uint32)
    buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, found.nbytes)
    reader = make_kernel(program, "read_counts")
    reader.set_args(buffer)
    cl.enqueue_nd_range_kernel(session.queue, reader, (1,), (1,))
    cl.enqueue_copy(session.queue, found, buffer)
    for planned, name in zip(plan.kernels, source.names, strict=True):
        elements = source.names.count(name) * planned.destination.storage.geometry.elements
        yield Counts(planned.kernel.template, *(found[number[name]] / elements))


def _counting(function: Function, number: int) -> Body:
    """The statements of a function that also adds what each work-item counts to its place in ``counts``."""
    body = ACCUMULATION.sub(r"products += 4, \1", function.body.text)
    declared = "".join(f"uint {name} = 0;\n" for name in COUNTERS)
    added = "".join(f"atomic_add(&counts[{len(COUNTERS) * number + i}], {name});\n" for i, name in enumerate(COUNTERS))
    return body_of(f"{declared}{body}\n{added}")
