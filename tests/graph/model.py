"""Models whose structure matters, the graphs that they are read into, and results on a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.quick import RUNTIMES
from tests.support.models import Builder
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import Graph, Node, remove_dead, verify
from tflgpu.model.reader import read_model
from tflgpu.options import Options
from tflgpu.passes import Pass
from tflgpu.plan import make_plan
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose, devices
from tflgpu.runtime.opencl.session import open_session

Floats = NDArray[np.float32]
IMAGE = (1, 6, 5, 7)
WINDOW = {"padding": "VALID", "stride_w": 1, "stride_h": 1}


class Model(Builder):
    """A model of which only structure matters, and its graph."""

    def conv(self, x: int, kernel: int = 1, out: int = 7) -> int:
        return self.convolution(x, out, kernel, padding="VALID")

    def pad(self, x: int, margins: list[tuple[int, int]]) -> int:
        shape = [d + a + b for d, (a, b) in zip(self.shape(x), margins, strict=True)]
        return self.add("PAD", [x, self.ints(margins)], shape)

    def transpose(self, x: int, order: Sequence[int]) -> int:
        return self.add("TRANSPOSE", [x, self.ints(order)], [self.shape(x)[axis] for axis in order])

    def graph(self, *outputs: int) -> Graph:
        lowered = lower(read_model(self.finish(outputs)))
        assert lowered.obstacles == ()
        return lowered.graph


def kinds(graph: Graph) -> Counter[str]:
    return Counter("view" if node.is_view else node.kind for node in graph.nodes)


def functions(node: Node) -> list[str]:
    return [op.function for op in node.epilogue]


def run(graph: Graph) -> list[Floats]:
    """On the first of the runtimes under test that is here."""
    here = {device.platform for device in devices()}
    device = choose(next((name for name in RUNTIMES if name in here), RUNTIMES[0]))
    session = open_session(device)
    plan = make_plan(graph, device.target(Options(precision="fp32")))
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal(graph[t].shape).astype(np.float32) for t in graph.inputs]
    source = render(plan)
    return LaunchExecutor(link(plan, source.names), build(source.text, session)[0], session).run(inputs)


def assert_same_results(before: Graph, after: Graph) -> None:
    for expected, got in zip(run(before), run(after), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def apply(rewrite: Pass, before: Graph) -> Graph:
    """The rewritten graph, verified, and with the results of the old one."""
    after = remove_dead(rewrite(before))
    verify(after)
    assert_same_results(before, after)
    return after


CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
