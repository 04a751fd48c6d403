"""Conditions of LiteRT's kernels on shapes and values that only lowering knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import gt

from tflgpu.graph.ir import Tensor
from tflgpu.model.checks import called_by
from tflgpu.model.model import Operator, Subgraph
from tflgpu.model.quantization import LEAST_SCALE, is_quantized
from tflgpu.ops.image.window import VALID, span

BLOCKS = ("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND")

# Inputs whose shapes decide where a window fits: the image, and weights where options do not have the kernel's size.
OPERANDS = {"AVERAGE_POOL_2D": 1, "CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "L2_POOL_2D": 1, "MAX_POOL_2D": 1}

# LiteRT prepares a subgraph anew for each operator that calls it: branches within branches double with every level.
MOST_PREPARED = 1 << 18


def cpu_obstacles(
    operator: Operator, inputs: Sequence[Tensor | None], subgraph: Subgraph, subgraphs: Sequence[Subgraph]
) -> Iterator[str]:
    """Yield why LiteRT must not run an operator that the device cannot run.

    Args:
        operator: The operator.
        inputs: None where absent or not yet known.
        subgraph: The operator's own.
        subgraphs: Those of the file, which it may call.
    """
    of_values = chain(_divisors(operator, inputs), _window_too_large(operator, inputs))
    of_scales = chain(_scales(operator, subgraph, subgraphs), block_obstacles(operator, subgraph))
    for obstacle in chain(of_values, of_scales, _preparations(operator, subgraphs)):
        yield f"operator {operator.index} {operator.code}: {obstacle}"


def _scales(operator: Operator, subgraph: Subgraph, subgraphs: Sequence[Subgraph]) -> Iterator[str]:
    """LiteRT's kernels divide by the scale, and make indices of the result."""
    tensors = [subgraph.tensors[t] for t in (*operator.inputs, *operator.outputs) if t >= 0]
    tensors += [t for called in subgraphs for t in called.tensors] if called_by(operator) else []
    for tensor in tensors:
        if tensor.data is None and tensor.quantization is not None and is_quantized(tensor):
            scale = min(tensor.quantization.scale)
            if scale < LEAST_SCALE:
                yield f"LiteRT's kernels would divide by {scale:g}, the scale of {tensor.name!r}"


def block_obstacles(operator: Operator, subgraph: Subgraph) -> Iterator[str]:
    """LiteRT's kernels give other numbers where weights have scales for blocks, and say nothing."""
    for tensor in (subgraph.tensors[t] for t in operator.inputs if t >= 0):
        if tensor.blocks is not None:
            yield f"LiteRT computes wrongly with the blocks of scales that {tensor.name!r} has"


def _preparations(operator: Operator, subgraphs: Sequence[Subgraph]) -> Iterator[str]:
    counts: dict[int, int] = {}  # operators that are prepared for a call of a subgraph

    def prepared(caller: Operator) -> int:
        for number in called_by(caller):
            if number not in counts:
                counts[number] = sum(map(prepared, subgraphs[number].operators))
        return 1 + sum(counts[number] for number in {*called_by(caller)})

    if (total := prepared(operator)) > MOST_PREPARED:
        yield f"LiteRT would prepare {total} operators for the calls in it; at most {MOST_PREPARED} are prepared"


def _divisors(operator: Operator, inputs: Sequence[Tensor | None]) -> Iterator[str]:
    if operator.code == "STRIDED_SLICE" and inputs[3] is not None and inputs[3].data is None:
        yield "its strides are computed at run time, and LiteRT goes on without end at a stride of 0"
    if operator.code in BLOCKS and inputs[1] is not None and inputs[1].data is None:
        yield "its block is computed at run time, and LiteRT divides by one of 0"


def _window_too_large(operator: Operator, inputs: Sequence[Tensor | None]) -> Iterator[str]:
    options = operator.options
    operands = inputs[: OPERANDS.get(operator.code, 0)]
    if not operands or options.get("padding") != VALID:
        return
    shapes = [tensor.shape for tensor in operands if tensor is not None and len(tensor.shape) == 4]
    if len(shapes) != len(operands):
        return
    image, *weights = (shape[1:3] for shape in shapes)
    kernel = weights[0] if weights else (options.get("filter_height", 0), options.get("filter_width", 0))
    dilation = options.get("dilation_h_factor", 1), options.get("dilation_w_factor", 1)
    covered = list(map(span, kernel, dilation))
    if any(map(gt, covered, image)):
        yield f"LiteRT's kernels differ in what a window of {covered} gives in {list(image)} pixels"
