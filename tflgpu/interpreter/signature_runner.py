"""Runs one signature of a model by the names of its inputs and outputs."""

from __future__ import annotations

from typing import Protocol

from tflgpu.interpreter.loaded_model import LoadedModel
from tflgpu.interpreter.subgraph_tensors import Array, Details


class HasModel(Protocol):
    """Protocol of what a runner needs of an Interpreter."""

    _model: LoadedModel


class SignatureRunner:
    """Runs one signature: keyword arguments by input name -> outputs by name.

    :meth:`Interpreter.get_signature_runner` makes it. Its tensors are the interpreter's, so that
    :meth:`Interpreter.get_tensor` can read them. Raises ValueError without an interpreter or for an unknown key.
    """

    def __init__(self, interpreter: HasModel | None = None, signature_key: str | None = None) -> None:
        if not interpreter:
            raise ValueError("None interpreter provided.")
        if not signature_key:
            raise ValueError("None signature_key provided.")
        self._signature = interpreter._model.signature(signature_key)
        self._tensors = interpreter._model.tensors(self._signature.subgraph)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        """Run the signature. It is compiled anew whenever the inputs have other shapes than before.

        Raises ValueError for wrong names or element types of inputs, RuntimeError if the model cannot be compiled for
        the inputs' shapes, or fails.
        """
        known, tensors = self._signature.inputs, self._tensors
        if len(inputs) != len(known):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, "
                f"expected {len(known)} vs provided {len(inputs)}"
            )
        for name, value in inputs.items():
            if name not in known:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
            tensors.resize(known[name], value.shape)
        tensors.allocate()
        for name, value in inputs.items():
            tensors.set(known[name], value)
        tensors.invoke()
        return {name: tensors.value(index).copy() for name, index in self._signature.outputs.items()}

    def get_input_details(self) -> dict[str, Details]:
        """LiteRT's description of each input by name."""
        return {name: self._tensors.details(index) for name, index in self._signature.inputs.items()}

    def get_output_details(self) -> dict[str, Details]:
        """LiteRT's description of each output by name."""
        return {name: self._tensors.details(index) for name, index in self._signature.outputs.items()}
