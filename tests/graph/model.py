"""Models whose structure matters, the graphs that they are read into, and results on a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.quick import RUNTIMES
from tests.support.models import Builder
from tests.support.running import run_plan
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import Graph, Node, remove_dead, verify
from tflgpu.model.reader import read_model
from tflgpu.options import Execution, Options
from tflgpu.passes import PASSES, Pass
from tflgpu.plan import make_plan
from tflgpu.runtime.opencl.devices import choose, devices

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
    plan = make_plan(graph, device.target(Options(precision="fp32", execution=Execution(executor="launch"))))
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal(graph[t].shape).astype(np.float32) for t in graph.inputs]
    return run_plan(plan, inputs, device)


def assert_same_results(before: Graph, after: Graph) -> None:
    for expected, got in zip(run(before), run(after), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def rewritten(passes: str, graph: Graph) -> Graph:
    """passes: one after another, by the names that ``tflgpu show --after`` takes."""
    for name in passes.split():
        graph = PASSES[name](graph)
    return graph


def apply(rewrite: str | Pass, before: Graph) -> Graph:
    """The rewritten graph, verified, and with the results of the old one."""
    after = remove_dead(rewritten(rewrite, before) if isinstance(rewrite, str) else rewrite(before))
    verify(after)
    assert_same_results(before, after)
    return after


CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
