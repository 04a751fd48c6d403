"""Long short-term memories of many cells as a node for each step of time, where that is faster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Array, Graph, Node, Tensor, TensorId, remove_dead
from tflgpu.graph.layout import LANES, Geometry, pack
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.fusing import is_pointwise
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.lstm_steps import LstmStep, ranked_steps, step_tiles
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange
from tflgpu.ops.sequence.lstm_node import Lstm
from tflgpu.target import Target, corrected

MOST_TIMES = 256  # a persistent kernel finds the arguments of each launch by a chain of comparisons


@GPU.rewrite("divide")
def step_lstms(planning: Planning) -> Planning:
    """With a node for each step wherever that is faster."""
    return _Stepping(planning).run()


class _Stepping:
    """Puts steps in the place of LSTMs, and collects the tensors that they need."""

    def __init__(self, planning: Planning) -> None:
        self._planning, self._graph, self._target = planning, planning.graph, planning.target
        self._fresh = planning.graph.fresh_ids()
        self._tensors: list[Tensor] = []
        self._storage: dict[TensorId, Storage] = {}

    def run(self) -> Planning:
        nodes = [step for node in self._graph.nodes for step in self._steps_of(node)]
        stepping = self._planning.with_nodes(nodes, self._tensors, self._storage)
        return replace(stepping, graph=remove_dead(stepping.graph))

    def _steps_of(self, node: Node) -> Iterable[Node]:
        """The nodes in the place of one: itself, where it is no LSTM or one kernel is faster."""
        lstm, shape, target = node.attributes, self._graph[node.output].shape, self._target
        if not isinstance(lstm, Lstm) or not _can_step(lstm, shape[1 - lstm.time_axis], target):
            return (node,)
        times, batch = shape[lstm.time_axis], shape[1 - lstm.time_axis]
        if times == 1 and (alone := self._only_step(node, lstm, batch)):
            return (alone,)
        return self._chain(node, lstm, times, batch) if _is_faster(lstm, times, batch, target) else (node,)

    def _only_step(self, node: Node, lstm: Lstm, batch: int) -> Node | None:
        """A step that multiplies the inputs, too; None where there is no such kernel."""
        sums, hidden, cell, *constants = node.inputs
        product = _product_of_inputs(self._graph, sums)
        if product is None:
            return None
        x, filters, bias = product
        depth = lstm.output_vec4s + tile_count(filters.shape[-1], LANES)
        if not any(step_tiles(lstm, batch, depth, self._target)):
            return None
        recurrent, *peephole = (_data(self._graph, t) for t in constants)
        weights = self._constant(_packed(lstm, recurrent, _by_gate(lstm, filters)))
        inputs = x, hidden, cell, weights, self._constant(bias), *self._packed_vectors(peephole)
        return replace(node, kind="lstm_step", inputs=inputs, attributes=LstmStep(lstm, batch, depth))

    def _chain(self, node: Node, lstm: Lstm, times: int, batch: int) -> Iterator[Node]:
        """A step for each time, and what puts their results in the place of the node's."""
        sums, hidden, cell, *constants = node.inputs
        recurrent, *peephole = (_data(self._graph, t) for t in constants)
        weights, peepholes = self._constant(_packed(lstm, recurrent)), self._packed_vectors(peephole)
        channels, results = self._graph[node.output].shape[2], list[TensorId]()
        for step in range(times):
            results.append(self._result(1, batch, 1, 1, channels))
            inputs = sums, hidden, cell, weights, self._constant(np.array([step], np.int32)), *peepholes
            attributes = LstmStep(lstm, batch, lstm.output_vec4s, first=step == 0)
            yield Node("lstm_step", inputs, results[-1], attributes, sources=node.sources)
            hidden = cell = results[-1]
        together = self._result(times, batch, 1, 1, channels)
        yield Node("concatenate", tuple(results), together, Concatenate(0), sources=node.sources)
        axes = AxisMap(lstm.time_axis), AxisMap(1 - lstm.time_axis), AxisMap(None), AxisMap(None), AxisMap(2)
        yield Node("rearrange", (together,), node.output, Rearrange(axes), node.epilogue, node.sources)

    def _packed_vectors(self, vectors: Iterable[Array]) -> list[TensorId]:
        return [self._constant(pack(vector)) for vector in vectors]

    def _result(self, *shape: int) -> TensorId:
        self._tensors.append(Tensor(next(self._fresh), "", shape, precise=True))
        tensor = self._tensors[-1].id
        self._storage[tensor] = Storage(Geometry(shape), "float")
        return tensor

    def _constant(self, data: Array) -> TensorId:
        self._tensors.append(Tensor(next(self._fresh), "", data.shape, data.dtype.name, data))
        return self._tensors[-1].id


def _can_step(lstm: Lstm, batch: int, target: Target) -> bool:
    """Whether a device has kernels for steps of such an LSTM."""
    plain = not lstm.layer_norm and not lstm.projection
    return plain and any(step_tiles(lstm, batch, lstm.output_vec4s, target))


def _product_of_inputs(graph: Graph, sums: TensorId) -> tuple[TensorId, Array, Array] | None:
    """The input, the weights and the biases of which a convolution makes ``sums``; None where there is more to them."""
    node = graph.producer.get(sums)
    if node is None or not is_pointwise(node) or node.epilogue or len(node.inputs) != 3:
        return None
    x, *constants = node.inputs
    weights, bias = map(graph.constant, constants)
    return None if weights is None or bias is None else (x, weights, bias)


def _data(graph: Graph, tensor: TensorId) -> Array:
    data = graph.constant(tensor)
    assert data is not None
    return data


def _by_gate(lstm: Lstm, filters: Array) -> Array:
    """[gates * cells, .., inputs] -> [gates, cells, inputs], without the cells that fill up a vec4."""
    return filters.reshape(lstm.gates, lstm.cell_vec4s * LANES, filters.shape[-1])[:, : lstm.cells]


def _packed(lstm: Lstm, *matrices: Array) -> Array:
    """Weights [gates, cells, numbers] -> [vec4 of cells][gate][number][4 cells], with zeros in what fills up a vec4."""
    padded = [np.pad(m, [(0, 0), (0, -lstm.cells % LANES), (0, -m.shape[2] % LANES)]) for m in matrices]
    joined = np.concatenate(padded, 2).astype(np.float32)
    by_vec4 = joined.reshape(lstm.gates, lstm.cell_vec4s, LANES, joined.shape[2]).transpose(1, 0, 3, 2)
    return np.ascontiguousarray(by_vec4)


def _is_faster(lstm: Lstm, times: int, batch: int, target: Target) -> bool:
    """Whether steps take less by the cost model than one work-group, which reads all weights at each time."""
    model = target.cost_model
    if times > MOST_TIMES:
        return False
    waiting = model.next_kernel(target.executor)
    steps = times * (waiting + ranked_steps(lstm, batch, lstm.output_vec4s, target)[0].cycles) + model.tile_latency
    turns = tile_count(lstm.gates * lstm.cell_vec4s, target.local_size)
    loop = Phase(turns * lstm.outputs, wait=model.k_step_latency)
    whole = times * Demand(1, (loop,), model.tile_latency).cycles(target)
    return steps < corrected("an LSTM in one kernel", whole, steps)
