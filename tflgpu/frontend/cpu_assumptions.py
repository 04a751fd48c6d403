"""What LiteRT's kernels take for granted of shapes and values that only lowering knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import gt

from tflgpu.graph.ir import Tensor
from tflgpu.model.model import Operator
from tflgpu.ops.image.window import VALID

CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
BLOCKS = ("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND")
POOLS = ("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D")


def cpu_obstacles(operator: Operator, inputs: Sequence[Tensor | None]) -> Iterator[str]:
    """Why LiteRT must not run an operator that the device cannot run. inputs: None where absent or not yet known."""
    for obstacle in (*_divisors(operator, inputs), *_window_too_large(operator, inputs)):
        yield f"operator {operator.index} {operator.code}: {obstacle}"


def _divisors(operator: Operator, inputs: Sequence[Tensor | None]) -> Iterator[str]:
    if operator.code == "STRIDED_SLICE" and inputs[3] is not None and inputs[3].data is None:
        yield "its strides are computed at run time, and LiteRT goes on without end at a stride of 0"
    if operator.code in BLOCKS and inputs[1] is not None and inputs[1].data is None:
        yield "its block is computed at run time, and LiteRT divides by one of 0"


def _window_too_large(operator: Operator, inputs: Sequence[Tensor | None]) -> Iterator[str]:
    options = operator.options
    if operator.code not in (*CONVOLUTIONS, *POOLS) or options.get("padding") != VALID:
        return
    if any(tensor is None or len(tensor.shape) != 4 for tensor in inputs[: 1 + (operator.code in CONVOLUTIONS)]):
        return
    shapes = [tensor.shape for tensor in inputs if tensor is not None]
    image = shapes[0][1:3]
    if operator.code in CONVOLUTIONS:
        kernel = shapes[1][1:3]
    else:
        kernel = options.get("filter_height", 0), options.get("filter_width", 0)
    dilation = options.get("dilation_h_factor", 1), options.get("dilation_w_factor", 1)
    covered = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if any(map(gt, covered, image)):
        yield f"LiteRT's kernels differ in what a window of {covered} gives in {list(image)} pixels"
