"""How far two answers are from double precision, where they differ by more than they should.

TFLite's CPU interpreter made the expected outputs, and it rounds, too: its dynamic-range kernels round activations to
8 bits at run time. Here the model is computed in numpy, from the weights as the file has them and the inputs as given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.conformance.cases import Array, Case
from tests.conformance.judge import Floats
from tests.ops.reference import ACTIVATIONS
from tests.ops.windows import Window, conv_2d
from tflgpu.model.model import FileTensor, Operator, Subgraph
from tflgpu.model.reader import read_model

# By the numbers of the schema (ActivationFunctionType, Padding).
ACTIVATION_NAMES = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH")
PADDING_NAMES = ("SAME", "VALID")


@dataclass(frozen=True)
class Errors:
    """The largest distance of an element from double precision: of an answer, and of the recorded output."""

    got: float
    recorded: float


def errors(case: Case, got: Sequence[Array]) -> Errors | None:
    """None if the model is more than one CONV_2D of a float image, which is all that is known here in double."""
    (graph,) = read_model(case.model).subgraphs
    if case.operators != ("CONV_2D",) or case.inputs[0].dtype != np.float32:
        return None
    exact = _convolution(graph.operators[0], graph, case.inputs[0].astype(np.float64))
    return Errors(*(float(np.abs(answer - exact).max()) for answer in (got[0], case.expected[0])))


def _convolution(o: Operator, graph: Subgraph, image: Floats) -> Floats:
    _, weights, bias = (graph.tensors[i] for i in o.inputs)
    filters = _real(weights)
    window = Window(
        (filters.shape[1], filters.shape[2]),
        (o.options["stride_h"], o.options["stride_w"]),
        (o.options["dilation_h_factor"], o.options["dilation_w_factor"]),
        PADDING_NAMES[o.options["padding"]],
    )
    return ACTIVATIONS[ACTIVATION_NAMES[o.options["fused_activation_function"]]](
        conv_2d(image, filters, _real(bias), window)
    )


def _real(tensor: FileTensor) -> Floats:
    """The numbers that a constant stands for. Output channels come first."""
    assert tensor.data is not None
    if tensor.quantization is None:
        return tensor.data.astype(np.float64)
    along = (-1, *(1,) * (tensor.data.ndim - 1))
    scale, zero = (np.reshape(n, along) for n in (tensor.quantization.scale, tensor.quantization.zero_point))
    return np.asarray(scale * (tensor.data.astype(np.float64) - zero))
