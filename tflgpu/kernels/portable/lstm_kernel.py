"""The kernel of the ``lstm`` node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES, pack
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import local_vec4s, tile_count
from tflgpu.ops.lstm import CPU_LANES, Lstm
from tflgpu.target import ElementType


@dataclass(frozen=True)
class Product:
    """How a kernel walks through packed weights [rows, columns]: ``chunks`` of rows by ``depth`` vec4s of columns.

    chunk_stride, column_stride: vec4s from one chunk to the next, and from one column.
    """

    chunks: int
    depth: int
    chunk_stride: int
    column_stride: int


def _packed(matrix: Array, lanes: int) -> tuple[Array, Product]:
    """Weights [rows, columns] for a product by chunks of ``lanes`` rows.

    On a CPU each chunk is a stream of its own; on a GPU neighbouring work-items read neighbouring vec4s.
    """
    rows, columns = matrix.shape
    chunks, depth = tile_count(rows, lanes), tile_count(columns, LANES)
    padded = np.zeros((depth * LANES, chunks * lanes), np.float32)
    padded[:columns, :rows] = matrix.T
    if lanes == LANES:
        return padded, Product(chunks, depth, 1, chunks)
    streams = padded.reshape(depth * LANES, chunks, lanes).transpose(1, 0, 2)
    return np.ascontiguousarray(streams), Product(chunks, depth, depth * lanes, lanes // LANES)


@dataclass(frozen=True, kw_only=True)
class LstmParameters(Parameters, template="portable/lstm", stores_once=True):
    """Parameters of ``templates/portable/lstm.cl.j2``."""

    lstm: Lstm
    times: int
    lanes: int
    reduction: int
    private_vec4s: int
    sums: Storage
    first_hidden: Storage
    first_cell: Storage
    weights_type: ElementType
    recurrent: Product
    projection: Product | None
    cell_clip: float | None
    projection_clip: float | None
    dirty: bool = True


@PORTABLE.lowering("lstm")
def lstm_kernel(request: Request) -> Kernel:
    """One tile a batch row. Where local memory is too small, it is one work-item's, in memory of its own."""
    a, target = request.attributes(Lstm), request.target
    lanes = CPU_LANES if target.family == "cpu" else LANES
    times, batch = (request.output.geometry.shape[axis] for axis in (a.time_axis, 1 - a.time_axis))
    arguments, recurrent, projection = _arguments(request, a, lanes)
    reduction = target.local_size if a.layer_norm else 0
    shares = a.workspace_vec4s + reduction <= local_vec4s(target)
    per_step = a.gates * a.cells * a.outputs + (a.outputs * a.cells if a.projection else 0)
    return Kernel(
        LstmParameters(
            lstm=a,
            times=times,
            lanes=lanes,
            reduction=reduction if shares else 0,
            private_vec4s=0 if shares else a.workspace_vec4s,
            sums=request.input(0),
            first_hidden=request.input(1),
            first_cell=request.input(2),
            weights_type=target.storage,
            recurrent=recurrent,
            projection=projection,
            cell_clip=a.cell_clip or None,
            projection_clip=a.projection_clip or None,
        ),
        arguments,
        tiles=batch,
        local_size=target.local_size if shares else 1,
        workspace=a.workspace_vec4s + reduction if shares else 0,
        macs=times * batch * per_step,
    )


def _arguments(request: Request, a: Lstm, lanes: int) -> tuple[tuple[Argument, ...], Product, Product | None]:
    """Return the node's inputs in their order, and how to walk through recurrent weights and those of a projection."""
    constants = map(request.constant, range(3, len(request.node.inputs)))
    padded = np.zeros((a.gates, a.cell_vec4s * LANES, a.outputs), np.float32)
    padded[:, : a.cells] = next(constants)
    weights, recurrent = _packed(padded.reshape(-1, a.outputs), lanes)
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
    if a.whole is not None:
        arguments.append(Argument("functions", "short", None, next(constants)))
    return tuple(arguments), recurrent, projection
