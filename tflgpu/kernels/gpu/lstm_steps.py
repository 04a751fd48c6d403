"""Long short-term memories of many cells: a kernel for each step of time, whose work-groups share the cells.

The kernel of a whole sequence is one work-group's, which reads all recurrent weights in each step. Work-groups wait for
each other between two kernels only. A single step needs no other kernel for what the inputs add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate, Tile, TileConfig, ranked
from tflgpu.kernels.demand import Demand, Phase, cycles
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import LOCAL_VEC4S, fits_local, local_vec4s, tile_count
from tflgpu.ops.sequence.lstm_node import Lstm
from tflgpu.target import ElementType, Target

SLICES = (1, 2, 4)  # vec4s of cells of a tile
ROWS = 16  # most sequences of a tile: weights are read once for all of them
LOADED = 16  # most weights that a work-item loads at once
LEAST_SHARERS = 8


@dataclass(frozen=True)
class LstmStep:
    """One step of ``lstm`` for ``batch`` sequences.

    Inputs: its sums, the outputs and the cells of the step before, packed weights, the number of the step, and peephole
    weights. The outputs and cells before the first step are the node's; of others both are in one result.
    Output: [1, batch, 1, 1, outputs + cells] in float, with the outputs padded to whole vec4s.

    depth: vec4s that the weights multiply. A step that is ``alone`` multiplies the inputs of the model, too, after the
    outputs. It has them in place of the sums, and their biases in place of its number. Its output is the node's.
    """

    lstm: Lstm
    batch: int
    depth: int
    first: bool = True

    @property
    def alone(self) -> bool:
        """Whether the step multiplies its input as well, because it is the only one."""
        return self.depth > self.lstm.output_vec4s


@dataclass(frozen=True)
class StepTile(Tile):
    """What a work-group computes: ``slices`` vec4s of cells for ``rows`` sequences.

    sharers: work-items that share the outputs of a vec4 of one gate. loaded: weights that each of them loads at once.
    """

    slices: int
    rows: int
    sharers: int
    loaded: int

    @property
    def config(self) -> TileConfig:
        """The parameters by which a tuner names the tile."""
        return self.slices, self.rows


@dataclass(frozen=True)
class StepWork:
    """What work-items do: they multiply ``k_steps`` weights, which they load in ``turns``, by ``rows`` numbers each."""

    tiles: int
    turns: int
    k_steps: int
    rows: int

    def demand(self, target: Target) -> Demand:
        """The outputs of the step before are copied first."""
        model, size = target.cost_model, target.local_size
        loads = Phase(1 + self.turns, (model.batch_latency,))
        loop = Phase(self.k_steps, (model.working(size, 1 + self.rows / LANES, self.rows / LANES, ()),))
        sums = Phase(1, (model.reduction(size * self.rows),))
        return Demand(self.tiles, (loads, loop, sums), model.tile_latency)


def ranked_steps(lstm: Lstm, batch: int, depth: int, target: Target) -> list[Candidate[StepTile, StepWork]]:
    """The ways to divide a step that multiplies ``depth`` vec4s, the fastest first."""

    def count(tile: StepTile) -> StepWork:
        tiles = tile_count(lstm.cell_vec4s, tile.slices) * tile_count(batch, tile.rows)
        k_steps = tile_count(LANES * depth, tile.sharers)
        return StepWork(tiles, tile_count(k_steps, tile.loaded), k_steps, tile.rows)

    return ranked(step_tiles(lstm, batch, depth, target), count, lambda work: cycles(work, target))


def step_tiles(lstm: Lstm, batch: int, depth: int, target: Target) -> Iterator[StepTile]:
    """The tiles that a device has room for."""
    for slices in SLICES:
        sharers = target.local_size // (1 << (slices * lstm.gates - 1).bit_length())
        if sharers < LEAST_SHARERS or not fits_local(target, slices * lstm.gates * sharers):
            continue
        k_steps = tile_count(LANES * depth, sharers)
        loaded = tile_count(k_steps, tile_count(k_steps, LOADED))
        for rows in sorted({tile_count(batch, parts) for parts in range(tile_count(batch, ROWS), batch + 1)}):
            if fits_local(target, rows * depth):
                yield StepTile(slices, rows, sharers, loaded)


@dataclass(frozen=True, kw_only=True)
class LstmStepParameters(Parameters, template="gpu/lstm_step"):
    """Parameters of ``templates/gpu/lstm_step.cl.j2``."""

    lstm: Lstm
    alone: bool
    batch: int
    depth: int
    slices: int
    sharers: int
    rows: int
    rows_at_once: int
    loaded: int
    hidden_stride: int
    cell_stride: int
    cell_begin: int
    cell_clip: float | None
    src: Storage
    hidden: Storage
    cell: Storage
    weights_type: ElementType
    dirty: bool


@GPU.lowering("lstm_step")
def lstm_step(request: Request) -> Kernel:
    """One step of an LSTM, whose work-groups share the cells."""
    attributes, target = request.node.attributes, request.target
    assert isinstance(attributes, LstmStep)
    lstm, batch, x = attributes.lstm, attributes.batch, request.input(0)
    hidden, cell = request.input(1), request.input(2)
    best = request.choose_candidate(ranked_steps(lstm, batch, attributes.depth, target))
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
        LstmStepParameters(
            lstm=lstm,
            alone=attributes.alone,
            batch=batch,
            depth=attributes.depth,
            slices=tile.slices,
            sharers=tile.sharers,
            rows=tile.rows,
            rows_at_once=rows_at_once,
            loaded=tile.loaded,
            hidden_stride=hidden.slices,
            cell_stride=cell.slices,
            cell_begin=0 if attributes.first else lstm.output_vec4s,
            cell_clip=lstm.cell_clip or None,
            src=x,
            hidden=hidden,
            cell=cell,
            weights_type=target.storage,
            dirty=True,
        ),
        tuple(arguments),
        tiles=best.work.tiles,
        local_size=target.local_size,
        workspace=max(tile.rows * attributes.depth, rows_at_once * partial),
        macs=batch * lstm.gates * lstm.cells * LANES * attributes.depth,
    )
