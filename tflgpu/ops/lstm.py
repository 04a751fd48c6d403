"""LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM, and the ``lstm`` node, which goes through a sequence of times.

A pointwise convolution computes what the inputs add to the gates, for all times at once; an ``lstm`` node then goes
through the times in order. Equations, optional inputs and the order of inputs are those of TFLite's
``lite/kernels/lstm_eval.cc``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import LANES, Shape
from tflgpu.model.quantization import Grid, fake_quantize_op
from tflgpu.ops.declaration import Array, Emitter, Site, declare, static
from tflgpu.ops.epilogue_ops import ACTIVATIONS
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import POINTWISE
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange, reshape_node

CPU_LANES = 16

CPU_VEC4S = CPU_LANES // LANES

WORKSPACE_VEC4S = 2048  # 32 KiB, the least local memory of a device with OpenCL's full profile

LARGEST_GROUP = 128  # work-items, each with a vec4 of its own for layer norm's sums


Multiplier = tuple[int, int]  # of fixed point with 31 bits after its point, and the power of two beside it


@dataclass(frozen=True)
class WholeSteps:
    """How an LSTM of 8 bits computes in whole numbers, with gates and cells of 16 bits, as LiteRT's kernels do.

    The node's sums and weights are whole numbers then, and so are its outputs and cells, each less its zero point; they
    are read and stored as the numbers that they stand for, multiples of ``scale`` and ``cell_scale``. A last input has
    the tables of a sigmoid, of a hyperbolic tangent of gates, and of one of cells, [3 * 2^16] of int16.

    inputs, recurrent, peepholes: what brings the sums of each gate to 16 bits. cell_bits: by which the product of input
    and cell gate is shifted to the right. hidden, hidden_zero: what brings cells that have been shown to 8 bits.
    projection: what brings the sums of a projection to 8 bits. zero: the zero point of outputs. clips: of cells and
    of a projection, as integers; 0 is none.
    """

    scale: float
    zero: int
    cell_scale: float
    cell_bits: int
    inputs: tuple[Multiplier, ...]
    recurrent: tuple[Multiplier, ...]
    peepholes: tuple[Multiplier, ...]
    hidden: Multiplier
    hidden_zero: int
    projection: Multiplier
    clips: tuple[int, int]


@dataclass(frozen=True)
class Lstm:
    """Inputs: what the model's inputs add to each gate [.., 1, .., gates * cells]; the outputs [batch, outputs] and the
    cells [batch, cells] before the first time; recurrent weights [gates, cells, outputs]. Optional inputs follow:
    peephole weights [gates, cells]; layer norm's factors and offsets [2, gates, cells]; projection weights
    [outputs, cells] and projection bias [outputs].

    Output: [.., .., outputs + cells], the outputs and then the cells of each time and batch row. Both are in one tensor
    because a node has one output, and the next run starts with both. Cells in the first input and outputs in the
    result are padded to whole vec4s.

    time_axis: 0 or 1; the other axis is the batch. gates: 4 (input, forget, cell and output), or 3 without the input
    gate, which is then 1 minus the forget gate. activation: a function of ``tflgpu.ops.epilogue_ops``, or empty for
    none. A clip of 0 is none. rounding: of the outputs of each time, cell_rounding: of the cells, both before the next
    time reads them: the parameters of the epilogue op ``fake_quantize``, or nothing. whole: how it computes with
    integers, if it does; then it has no layer norm, and activation, clips and rounding are as this says.
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
    rounding: tuple[float, ...] = ()
    cell_rounding: tuple[float, ...] = ()
    whole: WholeSteps | None = None

    @property
    def cell_vec4s(self) -> int:
        """Vec4s of the cells."""
        return -(-self.cells // LANES)

    @property
    def output_vec4s(self) -> int:
        """Vec4s of the outputs of a step."""
        return -(-self.outputs // LANES)

    @property
    def hidden_vec4s(self) -> int:
        """vec4s of local memory for the outputs; CPU kernels write them in whole vectors of CPU_LANES."""
        return -(-self.output_vec4s // CPU_VEC4S) * CPU_VEC4S

    @property
    def workspace_vec4s(self) -> int:
        """vec4s of local memory for outputs, cells and gates."""
        return self.hidden_vec4s + self.cell_vec4s + -(-self.gates * self.cell_vec4s // CPU_VEC4S) * CPU_VEC4S

    @property
    def fits(self) -> bool:
        """Whether every device has enough local memory for the kernel."""
        return self.workspace_vec4s + LARGEST_GROUP <= WORKSPACE_VEC4S


# Positions of inputs. Each of these is the first of four inputs: for the input, forget, cell and output gate.
WEIGHTS, RECURRENT, BIASES, NORMS = 1, 5, 12, 20

PEEPHOLES = {0: 9, 1: 10, 3: 11}  # gate -> position

PROJECTION, PROJECTION_BIAS, HIDDEN, CELL = 16, 17, 18, 19

REQUIRED = (0, 2, 3, 4, 6, 7, 8, 13, 14, 15, HIDDEN, CELL)

BASIC = 1  # of the schema's LSTMKernelType; the other one, 0, is the full kernel


@dataclass(frozen=True)
class Whole:
    """Parameters that the node needs to compute in whole numbers, and the constant input that it has only then."""

    steps: WholeSteps
    functions: Array


@dataclass(frozen=True)
class _Weights:
    """The constants of an LSTM; gates are in the node's order. Without ``norms`` the convolution adds the biases."""

    inputs: Array  # [gates, cells, inputs]
    recurrent: Array  # [gates, cells, outputs]
    biases: Array  # [gates, cells]
    peepholes: Array | None = None  # [gates, cells]
    norms: Array | None = None  # [gates, cells]
    projection: tuple[Array, Array] | None = None  # [outputs, cells], [outputs]


def _sequence_reasons(site: Site) -> Iterator[str]:
    yield from _full_reasons(site, rank=3)


@declare("UNIDIRECTIONAL_SEQUENCE_LSTM", versions=4, inputs=(1, 24), empty=False, reasons=_sequence_reasons)
def unidirectional_sequence_lstm(site: Site, emit: Emitter, whole: Whole | None = None) -> Tensor:
    """Return a long short-term memory over a sequence."""
    x = site.input(0)
    result, attributes = _emit_full(site, emit, x, 0 if site.options.get("time_major") else 1, whole)
    every = Rearrange((AxisMap(0), AxisMap(1), AxisMap(2)))
    return emit.node("rearrange", [result], (*x.shape[:2], attributes.outputs), every)


def _lstm_reasons(site: Site) -> Iterator[str]:
    basic = site.options.get("kernel_type") == BASIC
    yield from _basic_reasons(site) if basic else _full_reasons(site, rank=2)


@declare("LSTM", versions=5, inputs=(1, 24), empty=False, reasons=_lstm_reasons)
def lstm(site: Site, emit: Emitter, whole: Whole | None = None) -> Tensor | tuple[Tensor, ...]:
    """Return a single time. The basic kernel has five inputs, and returns its state instead of keeping it."""
    if site.options.get("kernel_type") == BASIC:
        return _emit_basic(site, emit)
    batch, depth = site.input(0).shape
    x = reshape_node(emit, site.input(0), (batch, 1, depth))
    result, attributes = _emit_full(site, emit, x, 1, whole)
    return _last_outputs(emit, result, attributes)


def gates_of(site: Site) -> tuple[int, ...]:
    """Return the gates that have weights of their own."""
    return (0, 1, 2, 3) if site.optional(WEIGHTS) is not None else (1, 2, 3)


def _sizes(site: Site) -> tuple[int, int, int]:
    """Return inputs, cells, outputs."""
    cells, inputs = site.input(WEIGHTS + 1).shape
    return inputs, cells, site.input(RECURRENT + 1).shape[-1]


def _full_reasons(site: Site, rank: int) -> Iterator[str]:
    """``rank``: axes of the input."""
    missing = [p for p in REQUIRED if site.optional(p) is None]
    if missing or len(site.inputs) not in (20, 24):
        yield f"it has {len(site.inputs)} inputs where 20 or 24 are expected, and lacks those at {missing}"
        return
    x, weights, recurrent = (site.input(p).shape for p in (0, WEIGHTS + 1, RECURRENT + 1))
    if len(x) != rank or len(weights) != 2 or len(recurrent) not in (1, 2):
        found = f"{list(x)}, {list(weights)} and {list(recurrent)}"
        yield f"its input, input weights and recurrent weights {found} do not have {rank}, 2, and 1 or 2 axes"
        return
    inputs, cells, outputs = _sizes(site)
    if x[-1] != inputs:
        yield f"its weights are for {inputs} inputs, but its input has shape {list(x)}"
    for position, shape in _constant_shapes(site).items():
        tensor = site.optional(position)
        if tensor is not None:
            yield from static(site, position, "weights or bias")
            if tensor.shape != shape:
                yield f"input {position} has shape {list(tensor.shape)}; {list(shape)} was expected"
    yield from _group_reasons(site)
    clips = [site.options.get(name, 0.0) for name in ("cell_clip", "proj_clip")]
    if not min(clips) >= 0:  # NaN is an obstacle, too
        yield f"it clips cells and projection at {clips}; no negative numbers were expected"
    batch = x[1] if rank == 3 and site.options.get("time_major") else x[0]
    for position, size in ((HIDDEN, outputs), (CELL, cells)):
        state = site.input(position)
        if state.size != batch * size:
            yield f"its state, input {position}, has shape {list(state.shape)}; [{batch}, {size}] was expected"
    yield from _memory_reasons(len(gates_of(site)), cells, outputs)


def _constant_shapes(site: Site) -> dict[int, Shape]:
    """Return the expected shape of each constant input that may be present. Recurrent weights of one axis are a
    diagonal."""
    (inputs, cells, outputs), gates = _sizes(site), gates_of(site)
    recurrent = (cells,) if len(site.input(RECURRENT + 1).shape) == 1 else (cells, outputs)
    shapes: dict[int, Shape] = {PROJECTION: (outputs, cells), PROJECTION_BIAS: (outputs,)}
    for gate in gates:
        shapes |= {WEIGHTS + gate: (cells, inputs), RECURRENT + gate: recurrent}
        shapes |= dict.fromkeys((BIASES + gate, NORMS + gate, PEEPHOLES.get(gate, BIASES + gate)), (cells,))
    return shapes


def _group_reasons(site: Site) -> Iterator[str]:
    """Obstacles in optional inputs that must be present together."""
    gates = gates_of(site)
    if 0 in gates:
        missing = [p for p in (RECURRENT, BIASES) if site.optional(p) is None]
        yield from (f"it has weights for an input gate, but not input {p}" for p in missing)
    groups = {
        "peephole weights": [PEEPHOLES[g] for g in gates if g in PEEPHOLES],
        "factors of layer norm": [NORMS + g for g in gates],
    }
    for name, positions in groups.items():
        present = [p for p in positions if site.optional(p) is not None]
        if present and present != positions:
            yield f"it has {name} in inputs {present}; all of {positions} or none were expected"
    _, cells, outputs = _sizes(site)
    if site.optional(PROJECTION) is None and (cells != outputs or site.optional(PROJECTION_BIAS) is not None):
        yield f"it has no projection weights, but {cells} cells, {outputs} outputs, or a projection bias"


def _memory_reasons(gates: int, cells: int, outputs: int) -> Iterator[str]:
    if not Lstm(1, gates, cells, outputs, "").fits:
        yield f"its {cells} cells and {outputs} outputs need more than the 32 KiB of local memory that every device has"


def _basic_reasons(site: Site) -> Iterator[str]:
    """Yield the reasons. Inputs: x, activation, weights [4 * cells, inputs + cells], bias, state."""
    if len(site.inputs) != 5 or any(t is None for t in site.inputs):
        yield f"it has {len(site.inputs)} inputs where 5 are expected"
        return
    x, hidden, weights, bias, cell = (site.input(i).shape for i in range(5))
    if len(x) != 2 or len(hidden) != 2 or x[0] != hidden[0] or cell != hidden:
        yield f"its input {list(x)}, activation {list(hidden)} and state {list(cell)} do not fit together"
        return
    cells = hidden[1]
    if weights != (4 * cells, x[1] + cells) or bias != (4 * cells,):
        yield f"its weights {list(weights)} and bias {list(bias)} do not fit {x[1]} inputs and {cells} cells"
    yield from static(site, 2, "weights")
    yield from static(site, 3, "bias")
    yield from _memory_reasons(4, cells, cells)


def _full_weights(site: Site) -> _Weights:
    gates, (_, cells, outputs) = gates_of(site), _sizes(site)

    def each(first: int) -> Array:
        return np.stack([site.known(first + g) for g in gates])

    def is_there(position: int) -> bool:
        return site.optional(position) is not None

    recurrent = each(RECURRENT)
    if recurrent.ndim == 2:
        recurrent = np.stack([np.diag(diagonal) for diagonal in recurrent])
    peepholes = None
    if is_there(PEEPHOLES[1]):
        nothing = np.zeros(cells, np.float32)  # for the cell gate
        peepholes = np.stack([site.known(PEEPHOLES[g]) if g in PEEPHOLES else nothing for g in gates])
    projection = None
    if is_there(PROJECTION):
        bias = site.known(PROJECTION_BIAS) if is_there(PROJECTION_BIAS) else np.zeros(outputs, np.float32)
        projection = site.known(PROJECTION), bias
    norms = each(NORMS) if is_there(NORMS + 1) else None
    return _Weights(each(WEIGHTS), recurrent, each(BIASES), peepholes, norms, projection)


def _emit_full(site: Site, emit: Emitter, x: Tensor, time_axis: int, whole: Whole | None = None) -> tuple[Tensor, Lstm]:
    """Return the node for ``x`` [batch, time, inputs], or [time, batch, inputs]; its last values become the state."""
    weights = _full_weights(site)
    gates, cells, outputs = weights.recurrent.shape
    attributes = Lstm(
        time_axis,
        gates,
        cells,
        outputs,
        ACTIVATIONS[site.options.get("fused_activation_function", 0)],
        peephole=weights.peepholes is not None,
        layer_norm=weights.norms is not None,
        projection=weights.projection is not None,
        cell_clip=float(site.options.get("cell_clip", 0.0)),
        projection_clip=float(site.options.get("proj_clip", 0.0)),
        rounding=_rounding(site.input_grids[HIDDEN]),
        cell_rounding=_rounding(site.input_grids[CELL]),
        whole=None if whole is None else whole.steps,
    )
    hidden, cell = site.input(HIDDEN), site.input(CELL)
    functions = () if whole is None else (whole.functions,)
    result = _emit_node(emit, x, (hidden, cell), weights, attributes, functions)
    emit.assign(HIDDEN, reshape_node(emit, _last_outputs(emit, result, attributes), hidden.shape))
    emit.assign(CELL, reshape_node(emit, _last_cells(emit, result, attributes), cell.shape))
    return result, attributes


def _rounding(grid: Grid | None) -> tuple[float, ...]:
    """Return what integer kernels do to a state at each time."""
    return () if grid is None else fake_quantize_op(grid).parameters


def _emit_basic(site: Site, emit: Emitter) -> tuple[Tensor, ...]:
    """Return the outputs: activation, state, x and old activation concatenated, and their product with the weights."""
    x, hidden, weights, bias, cell = (site.input(i) for i in range(5))
    (batch, inputs), cells = x.shape, hidden.shape[1]
    order = [0, 2, 1, 3]  # the file's gates are input, cell, forget, output
    matrix, biases = site.known(2).reshape(4, cells, -1)[order], site.known(3).reshape(4, cells)[order]
    attributes = Lstm(1, 4, cells, cells, "tanh")
    split = _Weights(matrix[..., :inputs], matrix[..., inputs:], biases)
    result = _emit_node(emit, reshape_node(emit, x, (batch, 1, inputs)), (hidden, cell), split, attributes)
    concatenated = emit.node("concatenate", [x, hidden], (batch, inputs + cells), Concatenate(1))
    product = emit.node("fully_connected", [concatenated, weights, bias], (batch, 4 * cells))
    return _last_outputs(emit, result, attributes), _last_cells(emit, result, attributes), concatenated, product


def _emit_node(
    emit: Emitter,
    x: Tensor,
    state: tuple[Tensor, Tensor],
    weights: _Weights,
    a: Lstm,
    functions: tuple[Array, ...] = (),
) -> Tensor:
    outer, inner, depth = x.shape
    padded = a.cell_vec4s * LANES
    rows, bias = np.zeros((a.gates, padded, depth), np.float32), np.zeros((a.gates, padded), np.float32)
    rows[:, : a.cells] = weights.inputs
    if weights.norms is None:
        bias[:, : a.cells] = weights.biases
    image = reshape_node(emit, x, (outer, 1, inner, depth))
    filters = emit.constant(rows.reshape(-1, 1, 1, depth)), emit.constant(bias.reshape(-1))
    shape, precise = (outer, 1, inner, bias.size), a.whole is not None
    sums = emit.node("convolution", [image, *filters], shape, Convolution(POINTWISE), precise=precise)
    constants = [np.ascontiguousarray(weights.recurrent)]
    if weights.peepholes is not None:
        constants.append(weights.peepholes)
    if weights.norms is not None:
        constants.append(np.stack([weights.norms, weights.biases]))
    if weights.projection is not None:
        constants += weights.projection
    constants += functions
    batch = x.shape[1 - a.time_axis]
    sizes = (batch, a.outputs), (batch, a.cells)
    before = [reshape_node(emit, tensor, shape) for tensor, shape in zip(state, sizes, strict=True)]
    steps = (outer, inner, a.output_vec4s * LANES + a.cells)
    return emit.node("lstm", [sums, *before, *map(emit.constant, constants)], steps, a, precise=True)


def _last_outputs(emit: Emitter, result: Tensor, a: Lstm) -> Tensor:
    return _last(emit, result, a.time_axis, 0, a.outputs)


def _last_cells(emit: Emitter, result: Tensor, a: Lstm) -> Tensor:
    return _last(emit, result, a.time_axis, a.output_vec4s * LANES, a.cells)


def _last(emit: Emitter, result: Tensor, time_axis: int, start: int, size: int) -> Tensor:
    """[batch, size]: channels ``start`` and on of an lstm node's result at the last time."""
    last, batch = AxisMap(None, result.shape[time_axis] - 1), AxisMap(0)
    outer = (last, batch) if time_axis == 0 else (batch, last)
    return emit.node("rearrange", [result], (result.shape[1 - time_axis], size), Rearrange((*outer, AxisMap(1, start))))
