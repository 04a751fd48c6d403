"""LSTMs of 8 bits, whose gates and cells have 16.

LiteRT rounds the sums of inputs and those of outputs to 16 bits each, computes gates in fixed point, and lets cells
saturate. What differs there by a step is read again at the next time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Tensor, Value
from tflgpu.model.quantization import Grid
from tflgpu.ops.declaration import Emitter, Site, judged
from tflgpu.ops.sequence.lstm import (
    BIASES,
    CELL,
    HIDDEN,
    NORMS,
    PEEPHOLES,
    PROJECTION,
    PROJECTION_BIAS,
    RECURRENT,
    WEIGHTS,
    Whole,
    gates_of,
    lstm,
    unidirectional_sequence_lstm,
)
from tflgpu.ops.sequence.lstm_node import Multiplier, WholeSteps
from tflgpu.ops.sixteen_bits.gate_functions import sigmoids, tangents
from tflgpu.ops.sixteen_bits.rules import fixed_point, is_symmetric, rule

TANH = 4  # of the schema's activations

GATE_SCALE = np.float32(2.0**-12)

CELL_BITS = 15  # after the point of cells, less those before it, of which LiteRT's tangent knows up to 6

MOST_BITS = 6

SHOWN = 4  # among the intermediate tensors: what the output gate shows of cells, before a projection


@rule("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", results="int8", activations=(TANH,))
def memory(site: Site, emit: Emitter) -> Tensor | None:
    """Return the outputs of an LSTM without layer norm, for cells of which LiteRT knows the tangent."""
    steps = _steps(site)
    if steps is None:
        return None
    bits = steps.cell_bits - CELL_BITS
    functions = np.concatenate([sigmoids(), tangents(3), tangents(bits)])
    grid, x = judged(site.input_grids[0]), site.input(0)
    counted = emit.node("map", [x], x.shape, None, (EpilogueOp("steps", (Value(0),), (grid.scale,)),), precise=True)
    inputs = [counted, *(_stored(site, place) for place in range(1, len(site.inputs)))]
    bare, whole = replace(site, inputs=tuple(inputs)), Whole(steps, functions)
    is_sequence = site.code != "LSTM"
    result = unidirectional_sequence_lstm(bare, emit, whole) if is_sequence else lstm(bare, emit, whole)
    assert isinstance(result, Tensor)
    return result


def _stored(site: Site, place: int) -> Tensor | None:
    """Return an input whose elements are the integers of the file, if it is a constant."""
    tensor, integers = site.inputs[place], site.stored[place]
    if tensor is None or integers is None:
        return tensor
    return replace(tensor, data=integers.astype(np.float32), scale=None)


def _steps(site: Site) -> WholeSteps | None:
    """Return how LiteRT rounds; None for layer norm, and where it has no kernel of integers."""
    gates, places = gates_of(site), range(1, len(site.inputs))
    x, hidden, cell = (site.input_grids[place] for place in (0, HIDDEN, CELL))
    shown = dict(enumerate(site.intermediate_grids)).get(SHOWN)
    if x is None or hidden is None or cell is None or shown is None or {x.dtype, hidden.dtype, shown.dtype} != {"int8"}:
        return None
    if site.optional(NORMS + 1) is not None or len(site.input(RECURRENT + 1).shape) != 2:
        return None
    constants = [place for place in places if place not in (HIDDEN, CELL) and site.optional(place) is not None]
    if any(site.stored[place] is None or not _is_whole(site, place) for place in constants):
        return None
    fraction, exponent = np.frexp(cell.scale)
    bits = int(exponent) + CELL_BITS - 1
    if hidden != site.output_grids[0] or not is_symmetric(cell) or fraction != 1 / 2 or not 0 <= bits <= MOST_BITS:
        return None

    def multipliers(first: int, scale: float) -> tuple[Multiplier, ...]:
        return tuple(_multiplier(_scale(site, first + gate) * np.float32(scale) / GATE_SCALE) for gate in gates)

    def clip(option: str, grid: Grid) -> int:
        steps = np.float32(site.options.get(option, 0.0)) / np.float32(grid.scale)
        return int(min(float(steps), grid.limits[1]))

    return WholeSteps(
        scale=hidden.scale,
        zero=int(hidden.zero),
        cell_scale=cell.scale,
        cell_bits=CELL_BITS + bits,
        inputs=multipliers(WEIGHTS, x.scale),
        recurrent=multipliers(RECURRENT, hidden.scale),
        peepholes=tuple(
            _multiplier(_scale(site, PEEPHOLES.get(gate)) * np.float32(cell.scale) / GATE_SCALE) for gate in gates
        ),
        hidden=_multiplier(np.float32(2.0**-30 / shown.scale)),
        hidden_zero=int(shown.zero),
        projection=_multiplier(_scale(site, PROJECTION) * np.float32(shown.scale) / np.float32(hidden.scale)),
        clips=(clip("cell_clip", cell), clip("proj_clip", hidden)),
    )


def _is_whole(site: Site, place: int) -> bool:
    """Whether a constant is a bias of integers, or has one scale and no zero point, and the type that kernels read."""
    tensor, grid = site.input(place), site.input_grids[place]
    if place in (*range(BIASES, BIASES + 4), PROJECTION_BIAS):
        return judged(site.stored[place]).dtype == np.int32
    dtype = "int16" if place in PEEPHOLES.values() else "int8"
    return grid is not None and grid.zero == 0 and grid.dtype == dtype and judged(tensor.scale).size == 1


def _scale(site: Site, place: int | None) -> np.float32:
    """Return the scale of an input, in single precision as LiteRT multiplies scales; 1 if it is absent."""
    grid = None if place is None or site.optional(place) is None else site.input_grids[place]
    return np.float32(1.0 if grid is None else grid.scale)


def _multiplier(real: np.float32) -> Multiplier:
    multiplier, exponent = fixed_point(np.array(float(real)))
    return int(multiplier), int(exponent)
