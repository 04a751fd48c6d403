"""The ``lstm`` node, a long short-term memory that walks through time, and its kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tflgpu.ir import Array
from tflgpu.layout import LANES, pack
from tflgpu.ops.kernel import Argument, Kernel, Request, variant

CPU_LANES = 16
CPU_QUADS = CPU_LANES // LANES
SCRATCH_QUADS = 2048  # 32 KiB, the least local memory of a device with OpenCL's full profile
LARGEST_GROUP = 128  # work-items, each with a quad of its own for layer norm's sums


@dataclass(frozen=True)
class Lstm:
    """Inputs: what the inputs give to each gate [.., 1, .., gates * cells]; the outputs [batch, outputs] and the cells
    [batch, cells] before the first time; recurrent weights [gates, cells, outputs]. Where there are any: peephole
    weights [gates, cells]; layer norm's factors and offsets [2, gates, cells]; projection weights [outputs, cells],
    and their bias.

    Output: [.., .., outputs + cells], for each time and batch row the outputs and behind them the cells: a node has one
    output, and at the last time both are what the next run begins with. Cells in the first input and outputs in the
    result are rounded up to whole quads.

    time_axis: 0 or 1; the other axis is the batch. gates: input, forget, cell and output, or 3 without the input gate,
    which is then the complement of the forget gate. activation: a step function, or empty. A clip of 0 is none.
    """

    time_axis: int
    gates: int
    cells: int
    outputs: int
    activation: str
    peephole: bool = False
    layer_norm: bool = False
    projection: bool = False
    cell_clip: float = 0.0
    projection_clip: float = 0.0

    @property
    def cell_quads(self) -> int:
        return -(-self.cells // LANES)

    @property
    def output_quads(self) -> int:
        return -(-self.outputs // LANES)

    @property
    def hidden_quads(self) -> int:
        """Local memory for the outputs, which a CPU's product writes in whole vectors."""
        return -(-self.output_quads // CPU_QUADS) * CPU_QUADS

    @property
    def scratch_quads(self) -> int:
        """Local memory for outputs, cells and gates."""
        return self.hidden_quads + self.cell_quads + -(-self.gates * self.cell_quads // CPU_QUADS) * CPU_QUADS

    @property
    def fits(self) -> bool:
        """Whether every device has the local memory that the kernel takes."""
        return self.scratch_quads + LARGEST_GROUP <= SCRATCH_QUADS


@dataclass(frozen=True)
class Product:
    """How a kernel walks through packed weights: chunks of rows by quads of columns; strides count quads."""

    chunks: int
    depth: int
    chunk_stride: int
    column_stride: int


def _packed(matrix: Array, lanes: int) -> tuple[Array, Product]:
    """Weights [rows, columns] for a product by chunks of ``lanes`` rows.

    On a CPU each chunk is a stream of its own; on a GPU neighbouring work-items read neighbouring quads.
    """
    rows, columns = matrix.shape
    chunks, depth = -(-rows // lanes), -(-columns // LANES)
    padded = np.zeros((depth * LANES, chunks * lanes), np.float32)
    padded[:columns, :rows] = matrix.T
    if lanes == LANES:
        return padded, Product(chunks, depth, 1, chunks)
    streams = padded.reshape(depth * LANES, chunks, lanes).transpose(1, 0, 2)
    return np.ascontiguousarray(streams), Product(chunks, depth, depth * lanes, lanes // LANES)


@variant("lstm")
def lstm_kernel(request: Request) -> Kernel:
    """One tile a batch row."""
    a, target = request.node.attributes, request.target
    assert isinstance(a, Lstm)
    lanes = CPU_LANES if target.family == "cpu" else LANES
    times, batch = (request.output.geometry.shape[axis] for axis in (a.time_axis, 1 - a.time_axis))
    constants = map(request.constant, range(3, len(request.node.inputs)))
    recurrent = np.zeros((a.gates, a.cell_quads * LANES, a.outputs), np.float32)
    recurrent[:, : a.cells] = next(constants)
    weights, product = _packed(recurrent.reshape(-1, a.outputs), lanes)
    arguments = [
        request.activation("sums", 0),
        request.activation("first_hidden", 1),
        request.activation("first_cell", 2),
        request.weights("recurrent", weights),
    ]
    if a.peephole:
        arguments.append(Argument("peephole", "float", None, pack(next(constants))))
    if a.layer_norm:
        arguments.append(Argument("norm", "float", None, pack(next(constants).reshape(-1, a.cells))))
    projection = None
    if a.projection:
        packed, projection = _packed(next(constants), lanes)
        arguments.append(request.weights("projection", packed))
        arguments.append(Argument("projection_bias", "float", None, pack(next(constants))))
    reduction = target.local_size if a.layer_norm else 0
    per_step = a.gates * a.cells * a.outputs + (a.outputs * a.cells if a.projection else 0)
    return Kernel(
        "lstm",
        {
            "lstm": a,
            "times": times,
            "lanes": lanes,
            "reduction": reduction,
            "sums": request.input(0),
            "first_hidden": request.input(1),
            "first_cell": request.input(2),
            "weights_type": target.storage,
            "recurrent": product,
            "projection": projection,
            "cell_clip": a.cell_clip or None,
            "projection_clip": a.projection_clip or None,
            "dirty": True,
        },
        tuple(arguments),
        tiles=batch,
        local_size=target.local_size,
        scratch=a.scratch_quads + reduction,
        macs=times * batch * per_step,
    )
