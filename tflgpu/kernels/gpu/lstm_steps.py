"""Long short-term memories of many cells: a kernel for each step of time, whose work-groups share the cells.

The kernel of a whole sequence is one work-group's, which reads all recurrent weights in each step: those of 845 cells
take it 98 us on an H200. Work-groups wait for each other between two kernels only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Array, Graph, Node, Tensor, TensorId
from tflgpu.graph.layout import LANES, Geometry, pack
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local, tile_count, waves
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange
from tflgpu.ops.sequence.lstm_node import Lstm
from tflgpu.target import ITEM_BYTES, Target

ROWS = 4  # most sequences of a tile: weights are read once for all of them

MOST_TIMES = 256  # a persistent kernel finds the arguments of each launch by a chain of comparisons

# Of the cycles of the kernel of a whole sequence, what the steps may take by the cost model. On an H200 they took 2.5
# to 3 times as long as it says.
GAIN = 0.3


@dataclass(frozen=True)
class LstmStep:
    """One step of ``lstm``.

    Inputs: its sums, the outputs and the cells of the step before, the number of the step, and packed recurrent and
    peephole weights. The outputs and cells before the first step are the node's; of others both are in one result.

    Output: [1, batch, 1, 1, outputs + cells] in float, with the outputs padded to whole vec4s.
    """

    lstm: Lstm
    first: bool
    batch: int


def step_lstms(
    graph: Graph, storage: Mapping[TensorId, Storage], target: Target
) -> tuple[Graph, dict[TensorId, Storage]]:
    """The graph with a node for each step wherever that is faster, and the storage of its activations."""
    known, fresh, nodes = dict(storage), graph.fresh_ids(), list[Node]()
    tensors: list[Tensor] = []

    def result(*shape: int) -> TensorId:
        tensors.append(Tensor(next(fresh), "", shape, precise=True))
        known[tensors[-1].id] = Storage(Geometry(shape), "float")
        return tensors[-1].id

    def constant(data: Array) -> TensorId:
        tensors.append(Tensor(next(fresh), "", data.shape, data.dtype.name, data))
        return tensors[-1].id

    for node in graph.nodes:
        lstm, shape = node.attributes, graph[node.output].shape
        if not isinstance(lstm, Lstm) or not _is_faster(lstm, shape, target):
            nodes.append(node)
            continue
        times, batch, channels = shape[lstm.time_axis], shape[1 - lstm.time_axis], shape[2]
        sums, hidden, cell, recurrent, *peephole = node.inputs
        weights = [constant(_packed(lstm, _data(graph, recurrent)))]
        weights += [constant(pack(_data(graph, t))) for t in peephole]
        steps = []
        for step in range(times):
            steps.append(result(1, batch, 1, 1, channels))
            attributes = LstmStep(lstm, step == 0, batch)
            inputs = sums, hidden, cell, constant(np.array([step], np.int32)), *weights
            nodes.append(Node("lstm_step", inputs, steps[-1], attributes, sources=node.sources))
            hidden = cell = steps[-1]
        together = result(times, batch, 1, 1, channels)
        nodes.append(Node("concatenate", tuple(steps), together, Concatenate(0), sources=node.sources))
        axes = AxisMap(lstm.time_axis), AxisMap(1 - lstm.time_axis), AxisMap(None), AxisMap(None), AxisMap(2)
        nodes.append(Node("rearrange", (together,), node.output, Rearrange(axes), node.epilogue, node.sources))
    return graph.with_nodes(nodes, tensors), known


def _data(graph: Graph, tensor: TensorId) -> Array:
    data = graph.constant(tensor)
    assert data is not None
    return data


def _packed(lstm: Lstm, recurrent: Array) -> Array:
    """Weights [gates, cells, outputs] -> [vec4 of cells][gate][output][4 cells], those past the last cell zero."""
    padded = np.zeros((lstm.gates, lstm.cell_vec4s * LANES, lstm.outputs), np.float32)
    padded[:, : lstm.cells] = recurrent
    by_vec4 = padded.reshape(lstm.gates, lstm.cell_vec4s, LANES, lstm.outputs).transpose(1, 0, 3, 2)
    return np.ascontiguousarray(by_vec4)


def _is_faster(lstm: Lstm, shape: tuple[int, ...], target: Target) -> bool:
    """Whether steps take less by the cost model than one work-group, which reads all weights at each time."""
    model, times, batch = target.cost_model, shape[lstm.time_axis], shape[1 - lstm.time_axis]
    if target.family != "gpu" or lstm.layer_norm or lstm.projection or times > MOST_TIMES:
        return False
    if not fits_local(target, lstm.gates * target.local_size):
        return False
    tiles, turns = lstm.cell_vec4s * tile_count(batch, ROWS), tile_count(lstm.outputs, target.local_size)
    loop = model.k_loop(turns, target.local_size * lstm.gates / model.loaded_vec4s)
    reduction = model.reduction(lstm.gates * target.local_size) * min(batch, ROWS)
    waiting = model.next_kernel(target.executor)
    step, moving = waiting + model.kernel(waves(tiles, target), loop + reduction), waiting + model.kernel(1, 0)
    # One work-group converts halves no faster than it loads floats.
    weights = lstm.gates * lstm.cells * lstm.outputs * ITEM_BYTES["float"]
    whole = model.batch_latency + weights / model.shared_weight_bytes
    return times * step + moving < GAIN * times * whole


@GPU.lowering("lstm_step")
def lstm_step(request: Request) -> Kernel:
    attributes, target = request.node.attributes, request.target
    assert isinstance(attributes, LstmStep)
    lstm, batch = attributes.lstm, attributes.batch
    hidden, cell, rows = request.input(1), request.input(2), min(batch, ROWS)
    arguments = [
        request.activation("sums", 0),
        request.activation("hidden", 1),
        request.activation("cell", 2),
        request.operand("step", 3),
        request.weights("recurrent", request.constant(4)),
    ]
    if lstm.peephole:
        arguments.append(Argument("peephole", "float", None, request.constant(5)))
    return Kernel(
        "gpu/lstm_step",
        {
            "lstm": lstm,
            "batch": batch,
            "rows": rows,
            "hidden_stride": hidden.slices,
            "cell_stride": cell.slices,
            "cell_begin": 0 if attributes.first else lstm.output_vec4s,
            "cell_clip": lstm.cell_clip or None,
            "sums": request.input(0),
            "hidden": hidden,
            "cell": cell,
            "weights_type": target.storage,
            "dirty": True,
        },
        tuple(arguments),
        tiles=lstm.cell_vec4s * tile_count(batch, rows),
        local_size=target.local_size,
        workspace=lstm.gates * target.local_size,
        macs=batch * lstm.gates * lstm.cells * lstm.outputs,
    )
