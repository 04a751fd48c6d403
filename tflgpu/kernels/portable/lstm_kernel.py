"""The kernel of the ``lstm`` node."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES, pack
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import local_vec4s, tile_count
from tflgpu.ops.sequence.lstm_node import CPU_LANES, Lstm
from tflgpu.target import Target


@dataclass(frozen=True)
class Product:
    """How a kernel walks through packed weights: chunks of rows by vec4s of columns; strides count vec4s.

    sharers: work-items that share the columns of a chunk, ``depth_of_sharer`` vec4s each.
    """

    chunks: int
    depth: int
    chunk_stride: int
    column_stride: int
    sharers: int = 1

    @property
    def depth_of_sharer(self) -> int:
        return tile_count(self.depth, self.sharers)

    def shared(self, items: int) -> Product:
        """The same, shared by as many of a group's work-items as there are for each chunk."""
        return replace(self, sharers=max(1, min(self.depth, items // self.chunks)))


def _packed(matrix: Array, lanes: int) -> tuple[Array, Product]:
    """Weights [rows, columns] for a product by chunks of ``lanes`` rows.

    On a CPU each chunk is a stream of its own; on a GPU neighbouring work-items read neighbouring vec4s.
    """
    rows, columns = matrix.shape
    chunks, depth = -(-rows // lanes), -(-columns // LANES)
    padded = np.zeros((depth * LANES, chunks * lanes), np.float32)
    padded[:columns, :rows] = matrix.T
    if lanes == LANES:
        return padded, Product(chunks, depth, 1, chunks)
    streams = padded.reshape(depth * LANES, chunks, lanes).transpose(1, 0, 2)
    return np.ascontiguousarray(streams), Product(chunks, depth, depth * lanes, lanes // LANES)


def _group(lstm: Lstm, target: Target) -> int:
    """Work-items of the one group of a batch row: of a launch as many as there can be, for all of them load weights.

    0 where local memory is too small for what they share.
    """
    room, size = local_vec4s(target) - lstm.workspace_vec4s, target.local_size
    if room < (size if lstm.layer_norm else 0):
        return 0
    if target.family == "gpu" and target.executor == "launch" and target.limits.local_is_real:
        while 2 * size <= min(room, target.limits.work_group_size):
            size *= 2
    return size


@PORTABLE.lowering("lstm")
def lstm_kernel(request: Request) -> Kernel:
    """One tile a batch row. Where local memory is too small, it is one work-item's, in memory of its own."""
    a, target = request.node.attributes, request.target
    assert isinstance(a, Lstm)
    lanes = CPU_LANES if target.family == "cpu" else LANES
    times, batch = (request.output.geometry.shape[axis] for axis in (a.time_axis, 1 - a.time_axis))
    constants = map(request.constant, range(3, len(request.node.inputs)))
    recurrent = np.zeros((a.gates, a.cell_vec4s * LANES, a.outputs), np.float32)
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
    size = _group(a, target)
    real = target.family == "gpu" and target.limits.local_is_real
    if real and 0 < size <= local_vec4s(target) - a.workspace_vec4s:
        product, projection = product.shared(size), projection and projection.shared(size)
    shared = any(p.sharers > 1 for p in (product, projection) if p)
    reduction = size if a.layer_norm or shared else 0
    per_step = a.gates * a.cells * a.outputs + (a.outputs * a.cells if a.projection else 0)
    return Kernel(
        "portable/lstm",
        {
            "lstm": a,
            "times": times,
            "lanes": lanes,
            "reduction": reduction,
            "private_vec4s": 0 if size else a.workspace_vec4s,
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
        local_size=size or 1,
        workspace=a.workspace_vec4s + reduction if size else 0,
        macs=times * batch * per_step,
    )
