"""LiteRT's ``Interpreter`` on an OpenCL device. A program changes to it by one import line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tflgpu.api import CompiledModel, compile
from tflgpu.graph.layout import Shape
from tflgpu.model.model_source import read_bytes
from tflgpu.model.tensor_details import tensor_details
from tflgpu.options import Options, check_options, whole_number

if TYPE_CHECKING:
    from tflgpu.frontend.entry_point import EntryPoint
    from tflgpu.model.model import FileTensor


Array = NDArray[Any]

Details = dict[str, Any]

# Options that an Interpreter does not take: the file or a method decides them.
DECIDED_BY_FILE_OR_METHODS = ("signature", "outputs", "batch", "input_shapes", "uint8_inputs")


class Interpreter:
    """Runs a .tflite model with the methods of ``ai_edge_litert.interpreter.Interpreter``.

    model_path, model_content: exactly one of the two.
    options: as for :func:`tflgpu.compile`, without those in ``DECIDED_BY_FILE_OR_METHODS``.

    Arguments for LiteRT's CPU kernels are accepted and ignored: ``experimental_delegates``, ``num_threads`` and
    ``experimental_op_resolver_type``. Intermediate tensors are not kept; ``Options.outputs`` of
    :func:`tflgpu.compile` gives them. Like LiteRT's, it is not thread-safe.

    Raises ValueError for wrong arguments, OSError if the file cannot be read, ModelError if it is no model.
    :meth:`allocate_tensors` compiles, and raises what :func:`tflgpu.compile` does.
    """

    def __init__(
        self,
        model_path: str | PathLike[str] | None = None,
        model_content: bytes | bytearray | memoryview | None = None,
        experimental_delegates: object = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: object = None,
        experimental_preserve_all_tensors: bool = False,
        *,
        options: Options | None = None,
    ) -> None:
        # A warm start of tflgpu.compile must not import the reader of files.
        from tflgpu.frontend.entry_point import entry_point
        from tflgpu.model.reader import read_model

        source = model_path if model_content is None else model_content
        if source is None or (model_path is not None and model_content is not None):
            raise ValueError("one of model_path and model_content must be given, and not both")
        if experimental_preserve_all_tensors:
            raise ValueError("intermediate tensors are not kept; name them in Options.outputs of tflgpu.compile")
        self._options = check_options(options)
        for name in DECIDED_BY_FILE_OR_METHODS:
            if getattr(self._options, name) is not None:
                raise ValueError(
                    f"Options.{name} is for tflgpu.compile; an Interpreter goes by the file and its methods"
                )
        self._source = read_bytes(source)  # once: what is compiled later is what is described now
        self._model = read_model(self._source)
        self._entry = entry_point(self._model)
        self._tensors = self._model.subgraphs[0].tensors
        self._input_shapes = {tensor.index: tensor.shape for _, tensor in self._entry.inputs}
        self._compiled: CompiledModel | None = None  # for the current input shapes; None before allocate_tensors
        self._values: dict[int, Array] = {}  # of the inputs, and of the last run's outputs

    def allocate_tensors(self) -> None:
        """Compile for the current shapes of the inputs, if not yet done. Compiling sets all inputs to zeros."""
        if self._compiled is None:
            shapes = {name: self._input_shapes[tensor.index] for name, tensor in self._entry.inputs}
            self._compiled = _compile(self._source, self._options, self._entry, shapes)
            self._values = {d["index"]: np.zeros(d["shape"], d["dtype"]) for d in self.get_input_details()}

    def invoke(self) -> None:
        """Run the model. Raises RuntimeError before :meth:`allocate_tensors`, DeviceError if the device fails."""
        if self._compiled is None:
            raise RuntimeError("the model is not ready; call allocate_tensors() first")
        results = self._compiled.run({name: self._values[tensor.index] for name, tensor in self._entry.inputs})
        self._values |= {tensor.index: results[name] for name, tensor in self._entry.outputs}

    def set_tensor(self, tensor_index: int, value: ArrayLike) -> None:
        """Copy a value of the input's shape and element type into it. Raises ValueError for anything else."""
        name = self._input(tensor_index).name
        array, target = np.asarray(value), self.tensor(tensor_index)()
        if array.dtype != target.dtype or array.shape != target.shape:
            raise ValueError(
                f"input {tensor_index} ({name!r}) was given {array.dtype} of shape {list(array.shape)}; "
                f"{target.dtype} of shape {list(target.shape)} was expected"
            )
        target[...] = array

    def get_tensor(self, tensor_index: int) -> Array:
        """A copy of an input, of an output of the last run, or of a constant. Raises ValueError for anything else."""
        return self.tensor(tensor_index)().copy()

    def tensor(self, tensor_index: int) -> Callable[[], Array]:
        """A function that gives the tensor's own array, not a copy. A run reads what is written to an input's array."""
        return lambda: self._value(self._known(tensor_index))

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int], strict: bool = False) -> None:
        """Give an input another shape. It takes effect at the next :meth:`allocate_tensors`.

        strict: change only sizes that the file leaves open. Raises ValueError for others, or if it is not an input.
        """
        tensor, shape = self._input(input_index), tuple(whole_number("tensor_size", size, 0) for size in tensor_size)
        fits = len(shape) == len(tensor.signature) and all(
            wanted in (-1, size) for size, wanted in zip(shape, tensor.signature, strict=True)
        )
        if strict and not fits:
            raise ValueError(f"input {input_index} cannot have shape {list(shape)}: {list(tensor.signature)} is fixed")
        if shape != self._input_shapes[input_index]:
            self._input_shapes[input_index] = shape
            self._compiled = None

    def reset_all_variables(self) -> None:
        """Set the model's variables to their initial values."""
        if self._compiled is not None:
            self._compiled.reset_state()

    def get_input_details(self) -> list[Details]:
        """LiteRT's description of each input, in order."""
        return [tensor_details(self._tensors[i], shape) for i, shape in self._input_shapes.items()]

    def get_output_details(self) -> list[Details]:
        """LiteRT's description of each output, in order; after :meth:`allocate_tensors` with the compiled shapes.

        A shape that depends on the inputs' values is that of the last run.
        """
        shapes = {info.name: info.shape for info in self._compiled.outputs} if self._compiled else {}
        if self._compiled:
            shapes |= {name: self._values[t.index].shape for name, t in self._entry.outputs if t.index in self._values}
        return [tensor_details(tensor, shapes.get(name)) for name, tensor in self._entry.outputs]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[Details]:
        """LiteRT's description of every tensor of a subgraph. Raises ValueError for an unknown subgraph."""
        if whole_number("subgraph_index", subgraph_index, 0) >= self.num_subgraphs():
            raise ValueError(f"subgraph {subgraph_index} was asked for; the model has {self.num_subgraphs()}")
        return [tensor_details(tensor) for tensor in self._model.subgraphs[subgraph_index].tensors]

    def num_subgraphs(self) -> int:
        """The number of subgraphs in the file."""
        return len(self._model.subgraphs)

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Names of inputs and outputs by signature."""
        return {s.key: {"inputs": list(s.inputs), "outputs": list(s.outputs)} for s in self._model.signatures}

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """A runner for a signature, by default for the only one. Raises ValueError for an unknown key.

        It is compiled separately and has its own state, which LiteRT's signatures would share.
        """
        from tflgpu.frontend.entry_point import entry_point  # inside, for the same reason as in __init__

        known = [s.key for s in self._model.signatures]
        if signature_key is None and len(known) == 1:
            (signature_key,) = known
        if signature_key not in known:
            raise ValueError(f"signature {signature_key!r} was asked for; the model has {known}")
        options = replace(self._options, signature=signature_key)
        return SignatureRunner(self._source, options, entry_point(self._model, signature_key))

    def _known(self, number: int) -> FileTensor:
        if whole_number("tensor_index", number, 0) >= len(self._tensors):
            raise ValueError(f"tensor {number} was asked for; the model has {len(self._tensors)}")
        return self._tensors[number]

    def _input(self, number: int) -> FileTensor:
        if whole_number("tensor_index", number, 0) not in self._input_shapes:
            raise ValueError(f"tensor {number} is no input; the inputs are {list(self._input_shapes)}")
        return self._tensors[number]

    def _value(self, tensor: FileTensor) -> Array:
        if tensor.data is not None:
            return tensor.data
        if self._compiled is not None and tensor.index in self._values:
            return self._values[tensor.index]
        what = f"tensor {tensor.index} ({tensor.name!r})"
        if tensor.index not in {t.index for _, t in (*self._entry.inputs, *self._entry.outputs)}:
            raise ValueError(
                f"{what} is neither input, output nor constant; name it in Options.outputs of tflgpu.compile"
            )
        missing = "allocate_tensors" if self._compiled is None else "invoke"
        raise ValueError(f"{what} has no value yet; call {missing}() first")


class SignatureRunner:
    """Runs one signature: keyword arguments by input name -> outputs by name. Made by an :class:`Interpreter`."""

    def __init__(self, source: bytes, options: Options, entry: EntryPoint) -> None:
        self._source, self._options, self._entry = source, options, entry
        self._compiled: CompiledModel | None = None
        self._shapes: dict[str, Shape] = {}

    def __call__(self, **inputs: ArrayLike) -> dict[str, Array]:
        """Run the signature. It is compiled anew whenever the inputs have other shapes than before.

        Raises ValueError for wrong names or element types of inputs, and the errors of :func:`tflgpu.compile`.
        """
        names = [name for name, _ in self._entry.inputs]
        if inputs.keys() != set(names):
            raise ValueError(f"inputs named {sorted(inputs)} were given; the signature has {names}")
        arrays = {name: np.asarray(inputs[name]) for name in names}
        shapes = {name: array.shape for name, array in arrays.items()}
        if self._compiled is None or shapes != self._shapes:
            self._compiled = _compile(self._source, self._options, self._entry, shapes)
            self._shapes = shapes
        return self._compiled.run(arrays)

    def get_input_details(self) -> dict[str, Details]:
        """LiteRT's description of each input by name."""
        return {name: tensor_details(tensor) for name, tensor in self._entry.inputs}

    def get_output_details(self) -> dict[str, Details]:
        """LiteRT's description of each output by name."""
        return {name: tensor_details(tensor) for name, tensor in self._entry.outputs}


def _compile(source: bytes, options: Options, entry: EntryPoint, shapes: Mapping[str, Shape]) -> CompiledModel:
    """The model for these input shapes. The file's own shapes are not an option: so the cache finds the model."""
    as_declared = shapes == {name: tensor.shape for name, tensor in entry.inputs}
    return compile(source, options if as_declared else replace(options, input_shapes=shapes))
