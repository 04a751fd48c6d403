"""Quantized operators in which tflgpu stays nearer the exact answer than LiteRT, whose kernel sets agree.

The page of numbers at the edge lists them, and ``tflgpu diff`` knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tflgpu.model.model import FileTensor, Operator, Subgraph
from tflgpu.model.quantization import biases_of_one_layer

LSTMS = ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM")

PEEPHOLE, CELL, NORMS = 11, 19, 20  # places of inputs of a full LSTM: of the output gate's peephole, and of all norms

Inputs = Sequence[FileTensor | None]  # None where absent


@dataclass(frozen=True)
class Difference:
    """litert, tflgpu: what each computes. applies: whether an operator's inputs and outputs are of this kind."""

    codes: tuple[str, ...]
    where: str
    litert: str
    tflgpu: str
    applies: Callable[[Inputs, Sequence[FileTensor]], bool]


def _are_sixteen_bits(inputs: Inputs, outputs: Sequence[FileTensor]) -> bool:
    return outputs[0].dtype == "int16" and outputs[0].quantization is not None


def _have_other_scales(inputs: Inputs, outputs: Sequence[FileTensor]) -> bool:
    result = outputs[0].quantization
    numbers = (t.quantization for t in inputs if t is not None and t.dtype == "int16")
    return _are_sixteen_bits(inputs, outputs) and any(q is not None and q != result for q in numbers)


def _are_other_integers(inputs: Inputs, outputs: Sequence[FileTensor]) -> bool:
    numbers = [t.quantization for t in inputs if t is not None and t.dtype == "int16"]
    return len(numbers) > 1 and None not in numbers and any(q != numbers[0] for q in numbers)


def _is_whole_lstm(inputs: Inputs, outputs: Sequence[FileTensor]) -> bool:
    first = inputs[0]
    return len(inputs) >= CELL and first is not None and outputs[0].dtype == first.dtype == "int8"


def _has_fine_cells(inputs: Inputs, outputs: Sequence[FileTensor]) -> bool:
    cell = inputs[CELL] if _is_whole_lstm(inputs, outputs) else None
    return cell is not None and cell.quantization is not None and min(cell.quantization.scale) < FINEST_CELLS


def _drops_peepholes(inputs: Inputs, outputs: Sequence[FileTensor]) -> bool:
    peephole = inputs[PEEPHOLE] if _is_whole_lstm(inputs, outputs) else None
    return peephole is not None and peephole.shape[-1:] > outputs[0].shape[-1:]


def _has_norms(inputs: Inputs, outputs: Sequence[FileTensor]) -> bool:
    return _is_whole_lstm(inputs, outputs) and any(norm is not None for norm in inputs[NORMS:])


FINEST_CELLS = 2.0**-15  # the scale, of which LiteRT has a tangent

KNOWN_DIFFERENCES = (
    Difference(
        ("CONCATENATION", "PACK", "SELECT", "SELECT_V2"),
        "int16, inputs of other scales than the result",
        "copies the integers, which then stand for other numbers",
        "gives the nearest numbers of the result's scale",
        _have_other_scales,
    ),
    Difference(
        ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "MAXIMUM", "MINIMUM"),
        "int16, operands of unequal scales",
        "compares the integers",
        "compares the numbers for which they stand",
        _are_other_integers,
    ),
    Difference(
        ("FLOOR_DIV", "FLOOR_MOD"),
        "int16 with scales",
        "divides the integers",
        "divides the numbers for which they stand",
        _are_sixteen_bits,
    ),
    Difference(
        ("RESIZE_BILINEAR",),
        "int16",
        "weights of 10 bits: up to 77 steps off",
        "weights of 24 bits: within half a step",
        _are_sixteen_bits,
    ),
    Difference(
        LSTMS,
        "int8, cells of a scale below 2^-15",
        "computes no tanh of cells, and lets products wrap around",
        "gates and a cell of floats; output and state are rounded",
        _has_fine_cells,
    ),
    Difference(
        LSTMS,
        "int8, peepholes and a projection to fewer outputs than cells",
        "reads one peephole weight for each output",
        "reads the peephole weights of all cells",
        _drops_peepholes,
    ),
    Difference(
        LSTMS,
        "int8, layer norm",
        "normalizes gates of 16 bits in whole numbers",
        "gates and a cell of floats; output and state are rounded",
        _has_norms,
    ),
)

SHARED_BIAS = Difference(
    ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"),
    "one bias of two layers, whose written scale is right for one of them",
    "input times weight in both layers",
    "the written scale in both layers",
    lambda inputs, outputs: True,
)


def differences(subgraph: Subgraph) -> Iterator[tuple[Operator, Difference]]:
    """Yield the operators of a subgraph of which one is known."""
    shared = biases_of_one_layer(subgraph)
    for operator in subgraph.operators:
        inputs = [subgraph.tensors[t] if t >= 0 else None for t in operator.inputs]
        outputs = [subgraph.tensors[t] for t in operator.outputs]
        for known in KNOWN_DIFFERENCES:
            if operator.code in known.codes and inputs and outputs and known.applies(inputs, outputs):
                yield operator, known
        if operator.index in shared:
            yield operator, SHARED_BIAS


def known_reasons(subgraph: Subgraph) -> dict[int, str]:
    """For each output of the subgraph, by its place, that depends on such operators: what makes it another one."""
    reached: dict[int, str] = {}
    found = {operator.index: (operator, known) for operator, known in differences(subgraph)}
    for operator in subgraph.operators:
        reason = next((reached[t] for t in operator.inputs if t in reached), None)
        if operator.index in found:
            _, known = found[operator.index]
            reason = f"operator {operator.index} {operator.code} ({known.where}): LiteRT has {known.litert}"
        if reason is not None:
            reached |= {t: reached.get(t, reason) for t in operator.outputs}
    return {place: reached[t] for place, t in enumerate(subgraph.outputs) if t in reached}
