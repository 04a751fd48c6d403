"""Graphs and plans of models, for devices that need not be here, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import tflgpu
from tests.support.targets import H200
from tflgpu.compiler import lower_file
from tflgpu.errors import UnsupportedError
from tflgpu.frontend.frontend import lower_model
from tflgpu.frontend.lower import Choices, lower
from tflgpu.graph.ir import Array, Graph
from tflgpu.kernels.request import APART, FUSED, Chooser, Request, TileConfig, first_ranked
from tflgpu.model.reader import read_model
from tflgpu.ops.evaluate import value_of
from tflgpu.options import Options
from tflgpu.passes import optimize
from tflgpu.plan import Plan, make_plan
from tflgpu.target import Target

DEFAULTS = Options()


def graph_of(model: bytes) -> Graph:
    """The graph after the passes for every device."""
    options = tflgpu.Options(fallback="forbid")
    return optimize(lower_model(read_model(model), options, None).lowered.graph)


def computed_in_numpy(graph: Graph, inputs: Sequence[Array]) -> list[Array] | None:
    """The outputs of a graph; None if it has a node that constants are not folded through."""
    values = dict(zip(graph.inputs, inputs, strict=True)) | {
        t: tensor.data for t, tensor in graph.tensors.items() if tensor.data is not None
    }
    for node in graph.nodes:
        value = value_of(node, [replace(graph[t], data=values[t]) for t in node.inputs], graph[node.output])
        if value is None:
            return None
        values[node.output] = value
    return [values[tensor] for tensor in graph.outputs]


def obstacles_of(model: bytes, **options: Any) -> str:
    """The reasons for which operators cannot run on a device. options: ``Choices`` of lowering."""
    return " ".join(lower(read_model(model), choices=Choices(**options)).obstacles)


def plan_of(model: bytes, target: Target = H200, options: Options = DEFAULTS, choose: Chooser = first_ranked) -> Plan:
    """The plan of a model that runs on the device as one piece. Raises UnsupportedError if it does not."""
    lowered = lower_file(model, options, target.missing_types).lowered
    if not lowered.is_whole:
        raise UnsupportedError(lowered.cuts)
    return make_plan(optimize(lowered.graph), target, choose)


def taking(fused: Collection[str] | None = None, **tiles: TileConfig) -> Chooser:
    """Take these tiles, by the kind of their node, as tuning may; of other nodes the fastest.

    fused: the kinds of nodes that take the place of several; by default those that the cost model finds faster.
    """

    def choose(request: Request, ranked: Sequence[TileConfig]) -> TileConfig:
        kind = request.node.kind
        if request.parts:
            return ranked[0] if fused is None else FUSED if kind in fused else APART
        wanted = tiles.get(kind, ranked[0])
        assert wanted in ranked, f"{kind} has no tile {wanted}, but {ranked}"
        return wanted

    return choose


def kinds(plan: Plan) -> list[str]:
    """The kind of each node that has a kernel."""
    return [planned.node.kind for planned in plan.kernels]


def templates(plan: Plan) -> list[str]:
    return [planned.kernel.template for planned in plan.kernels]
