"""Conditions of LiteRT's LSTM on its inputs: one type of kernel, picked by few of them, reads them all."""

from __future__ import annotations

from tflgpu.errors import ModelError
from tflgpu.model.model import Subgraph

CODES = ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM")
FULL = 20  # inputs; a basic LSTM has 5

RECURRENT = range(5, 9)
WEIGHTS = (*range(1, 12), 16)  # and peepholes; of integers in hybrid models
STATES = (18, 19)
FLOATS = (*range(12, 16), *range(17, 24))  # biases, state, factors of layer norms


def check_lstm_operands(subgraph: Subgraph) -> None:
    """Raise ModelError for element types that no kernel is for, a state with two uses, or recurrent weights of
    different ranks.
    """
    for operator in subgraph.operators:
        if operator.code not in CODES or operator.is_custom or len(operator.inputs) < FULL:
            continue
        where = f"operator {operator.index} {operator.code}"
        present = {place: subgraph.tensors[t] for place, t in enumerate(operator.inputs) if t >= 0}
        if len({len(tensor.shape) for place, tensor in present.items() if place in RECURRENT}) > 1:
            raise ModelError(f"{where} has recurrent weights of different ranks")
        if any(operator.inputs.count(operator.inputs[place]) > 1 for place in STATES):
            raise ModelError(f"{where} has a state that is also another one of its inputs")
        if present[0].dtype != "float32":
            continue
        for places, types in ((WEIGHTS, ("float16", "float32", "int8", "uint8")), (FLOATS, ("float32",))):
            for place in places:
                if place in present and present[place].dtype not in types:
                    raise ModelError(
                        f"{where} has {present[place].dtype} as its input {place}; {' or '.join(types)} was expected"
                    )
