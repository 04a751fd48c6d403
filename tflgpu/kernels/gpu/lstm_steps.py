"""Long short-term memories of many cells: a kernel for each step of time, whose work-groups share the cells.

The kernel of a whole sequence is one work-group's, which reads all recurrent weights in each step: those of 845 cells
take it 98 us on an H200. Work-groups wait for each other between two kernels only. A single step needs no other kernel
for what the inputs add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Array, Graph, Node, Tensor, TensorId, remove_dead
from tflgpu.graph.layout import LANES, Geometry, pack
from tflgpu.kernels.candidates import Candidate, TileConfig, ranked
from tflgpu.kernels.fusing import is_pointwise
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import LOCAL_VEC4S, fits_local, local_vec4s, tile_count, waves
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange
from tflgpu.ops.sequence.lstm_node import Lstm
from tflgpu.target import Target

SLICES = (1, 2, 4)  # vec4s of cells of a tile
ROWS = 16  # most sequences of a tile: weights are read once for all of them
LOADED = 16  # most weights that a work-item loads at once
LEAST_SHARERS = 8

MOST_TIMES = 256  # a persistent kernel finds the arguments of each launch by a chain of comparisons

# Of the cycles of the kernel of a whole sequence, what the steps may take by the cost model. On an H200 that kernel
# took 0.4 of what it says for 60 to 132 cells, and steps of those 1.2 times as much.
GAIN = 0.33


@dataclass(frozen=True)
class LstmStep:
    """One step of ``lstm`` for ``batch`` sequences.

    Inputs: its sums, the outputs and the cells of the step before, packed weights, the number of the step, and peephole
    weights. The outputs and cells before the first step are the node's; of others both are in one result.
    Output: [1, batch, 1, 1, outputs + cells] in float, with the outputs padded to whole vec4s.

    depth: vec4s that the weights multiply. A step that is ``alone`` multiplies the inputs of the model, too, behind the
    outputs. It has them in place of the sums, and their biases in place of its number. Its output is the node's.
    """

    lstm: Lstm
    batch: int
    depth: int
    first: bool = True

    @property
    def alone(self) -> bool:
        return self.depth > self.lstm.output_vec4s


@dataclass(frozen=True)
class StepTile:
    """What a work-group computes: ``slices`` vec4s of cells for ``rows`` sequences.

    sharers: work-items that share the outputs of a vec4 of one gate. loaded: weights that each of them loads at once.
    """

    slices: int
    rows: int
    sharers: int
    loaded: int

    @property
    def config(self) -> TileConfig:
        return self.slices, self.rows


@dataclass(frozen=True)
class StepWork:
    """What work-items do: they multiply ``k_steps`` weights, which they load in ``turns``, by ``rows`` numbers each."""

    tiles: int
    turns: int
    k_steps: int
    rows: int


def step_lstms(
    graph: Graph, storage: Mapping[TensorId, Storage], target: Target
) -> tuple[Graph, dict[TensorId, Storage]]:
    """The graph with a node for each step wherever that is faster, and the storage of its activations."""
    return _Stepping(graph, storage, target).run()


class _Stepping:
    """Puts steps in the place of LSTMs, and collects the tensors that they need."""

    def __init__(self, graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> None:
        self._graph, self._storage, self._target = graph, dict(storage), target
        self._fresh = graph.fresh_ids()
        self._tensors: list[Tensor] = []

    def run(self) -> tuple[Graph, dict[TensorId, Storage]]:
        nodes = [step for node in self._graph.nodes for step in self._steps_of(node)]
        return remove_dead(self._graph.with_nodes(nodes, self._tensors)), self._storage

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
        if not any(_tiles(lstm, batch, depth, self._target)):
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
    return target.family == "gpu" and plain and any(_tiles(lstm, batch, lstm.output_vec4s, target))


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
    steps = times * (waiting + _ranked(lstm, batch, lstm.output_vec4s, target)[0].cycles) + model.kernel(1, 0)
    turns = tile_count(lstm.gates * lstm.cell_vec4s, target.local_size)
    return steps < GAIN * times * model.kernel(1, model.k_loop(turns * lstm.outputs, busy=0))


def _ranked(lstm: Lstm, batch: int, depth: int, target: Target) -> list[Candidate[StepTile, StepWork]]:
    """The ways to divide a step that multiplies ``depth`` vec4s, the fastest first."""

    def count(tile: StepTile) -> StepWork:
        tiles = tile_count(lstm.cell_vec4s, tile.slices) * tile_count(batch, tile.rows)
        k_steps = tile_count(LANES * depth, tile.sharers)
        return StepWork(tiles, tile_count(k_steps, tile.loaded), k_steps, tile.rows)

    def cycles(work: StepWork) -> float:
        model, size = target.cost_model, target.local_size
        busy = model.working(size, 1 + work.rows / LANES, work.rows / LANES, ())
        # The outputs of the step before are copied first.
        loop = (1 + work.turns) * model.batch_latency + work.k_steps * busy
        return model.kernel(waves(work.tiles, target), loop + model.reduction(size * work.rows))

    return ranked(_tiles(lstm, batch, depth, target), count, cycles)


def _tiles(lstm: Lstm, batch: int, depth: int, target: Target) -> Iterator[StepTile]:
    for slices in SLICES:
        sharers = target.local_size // (1 << (slices * lstm.gates - 1).bit_length())
        if sharers < LEAST_SHARERS or not fits_local(target, slices * lstm.gates * sharers):
            continue
        k_steps = tile_count(LANES * depth, sharers)
        loaded = tile_count(k_steps, tile_count(k_steps, LOADED))
        for rows in sorted({tile_count(batch, parts) for parts in range(tile_count(batch, ROWS), batch + 1)}):
            if fits_local(target, rows * depth):
                yield StepTile(slices, rows, sharers, loaded)


@GPU.lowering("lstm_step")
def lstm_step(request: Request) -> Kernel:
    attributes, target = request.node.attributes, request.target
    assert isinstance(attributes, LstmStep)
    lstm, batch, x = attributes.lstm, attributes.batch, request.input(0)
    hidden, cell = request.input(1), request.input(2)
    best = request.choose_candidate(_ranked(lstm, batch, attributes.depth, target))
    tile, partial = best.tile, lstm.gates * best.tile.slices * best.tile.sharers
    rows_at_once = min(tile.rows, min(LOCAL_VEC4S, local_vec4s(target)) // partial)
    arguments = [
        request.activation("x" if attributes.alone else "sums", 0),
        request.activation("hidden", 1),
        request.activation("cell", 2),
        request.weights("weights", request.constant(3)),
        request.operand("bias" if attributes.alone else "step", 4),
    ]
    if lstm.peephole:
        arguments.append(Argument("peephole", "float", None, request.constant(5)))
    return Kernel(
        "gpu/lstm_step",
        {
            "lstm": lstm,
            "alone": attributes.alone,
            "batch": batch,
            "depth": attributes.depth,
            "slices": tile.slices,
            "sharers": tile.sharers,
            "rows": tile.rows,
            "rows_at_once": rows_at_once,
            "loaded": tile.loaded,
            "hidden_stride": hidden.slices,
            "cell_stride": cell.slices,
            "cell_begin": 0 if attributes.first else lstm.output_vec4s,
            "cell_clip": lstm.cell_clip or None,
            "src": x,
            "hidden": hidden,
            "cell": cell,
            "weights_type": target.storage,
            "dirty": True,
        },
        tuple(arguments),
        tiles=best.work.tiles,
        local_size=target.local_size,
        workspace=max(tile.rows * attributes.depth, rows_at_once * partial),
        macs=batch * lstm.gates * lstm.cells * LANES * attributes.depth,
    )
