"""The ``lstm`` node: a long short-term memory that goes through a sequence of times."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES

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
