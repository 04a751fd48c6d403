"""Executors of small models whose work-groups claim tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl

import tflgpu
from tests.support.models import Builder
from tests.support.planning import plan_of
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import render_claiming, tables
from tflgpu.runtime.executors.claiming_executor import ClaimingExecutor
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.executors.resident import LEFT, OVER
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session

SHAPE = (1, 32, 32, 16)


def branches(shape: tuple[int, ...] = SHAPE) -> bytes:
    """Three chains of convolutions of one input, which meet: several kernels of several tiles in an interval."""
    builder = Builder()
    random = np.random.default_rng(0)
    x = builder.input(shape, name="x")
    ends = []
    for _ in range(3):
        end = x
        for _ in range(3):
            weights = builder.constant(random.normal(0, 0.1, (16, 3, 3, 16)).astype(np.float32))
            bias = builder.constant(random.normal(0, 0.1, 16).astype(np.float32))
            end = builder.add("CONV_2D", [end, weights, bias], shape, padding="SAME", stride_w=1, stride_h=1)
        ends.append(end)
    added = builder.add("ADD", ends[:2], shape)
    return builder.finish([builder.add("MUL", [added, ends[2]], shape, name="y")])


X = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)


class Executors:
    """A model in both executors. groups: work-groups that the claiming one has for so many cores.

    settings: of :class:`ClaimingExecutor`.
    """

    def __init__(
        self,
        device_name: str,
        groups: int,
        cores: int | None = None,
        shape: tuple[int, ...] = SHAPE,
        **settings: Any,
    ) -> None:
        options = tflgpu.Options(device=device_name, precision="fp32")
        device = choose(device_name)
        plan = plan_of(branches(shape), device.target(options))
        source = render(plan)
        executable = link(plan, source.names)
        text, claiming = render_claiming(source, executable)
        session = open_session(device)
        wide = replace(session, device=replace(device, compute_units=cores or groups))
        self.launching = LaunchExecutor(executable, build(source.text, session)[0], session)
        self.claiming = ClaimingExecutor(executable, claiming, build(text, session)[0], wide, **settings)
        assert self.claiming._kernel.groups == groups

    def check(self, x: np.ndarray = X) -> None:
        (expected,), (got,) = self.launching.run([x]), self.claiming.run([x])
        np.testing.assert_array_equal(got, expected)


def ran(claiming: ClaimingExecutor, runs: int) -> None:
    """Set the counters as if the model had run so many times."""
    groups, order = claiming._kernel.groups, claiming._claiming.order
    words = np.zeros((1 + groups, claiming._claiming.row), np.int64)
    launches = [claiming.executable.launches[number] for number in order]
    tiles = np.array([launch.groups for launch in launches])
    words[0, : len(order)] = runs * np.array(tables(launches)["left"])
    for group in range(groups):
        words[1 + group, : len(order)] = runs * (tiles // groups + (group < tiles % groups))
    head = np.zeros(claiming._claiming.counter_words(groups) - words.size, np.int64)
    head[OVER], head[LEFT] = runs, max(1, groups - 1)
    counters = np.concatenate((head, words.reshape(-1))).astype(np.uint32)
    cl.enqueue_copy(claiming.session.queue, claiming._kernel.counters, counters)


SMALL = (1, 2, 3, 16)
