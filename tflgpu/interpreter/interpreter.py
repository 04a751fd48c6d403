"""LiteRT's ``Interpreter`` on an OpenCL device, and the runners of its signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum, unique
from os import PathLike
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike

from tflgpu.checking.option_declarations import require_defaults
from tflgpu.checking.option_fields import GREATEST_SIZE, whole_number
from tflgpu.interpreter.delegate import DECIDED_BY_FILE_OR_METHODS, chosen_options
from tflgpu.interpreter.loaded_model import LoadedModel, read_content
from tflgpu.interpreter.subgraph_tensors import LEAST_INDEX, Array, Details, operator_details
from tflgpu.model.model_source import Buffer
from tflgpu.options import Options, check_options


@unique
class OpResolverType(Enum):
    """LiteRT's sets of CPU kernels, by its names and numbers. They make no difference to kernels of a device."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


def check_resolver(given: object) -> None:
    """Accept a member of :class:`OpResolverType`, LiteRT's own included. It has no effect.

    Args:
        given: The argument ``experimental_op_resolver_type`` of an Interpreter.

    Raises:
        ValueError: It is no such member.
    """
    name = given.name if isinstance(given, Enum) else None
    if name not in OpResolverType.__members__:
        raise ValueError(f"Unrecognized passed in op resolver type: {given}")


class _Memory:
    """Memory that a view and everything sliced from it keep alive."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class Views:
    """Counts the views that were given out: a run replaces what they look at, and they would not notice."""

    def __init__(self) -> None:
        self._held: WeakSet[_Memory] = WeakSet()

    def of(self, array: Array) -> Array:
        """Return another array on the same memory, whose life is known.

        Args:
            array: The owner of the memory.
        """
        memory = _Memory(array)
        self._held.add(memory)
        return np.asarray(memory)

    def check_released(self) -> None:
        """Raise RuntimeError while a program holds a view, or a part of one."""
        if self._held:
            raise RuntimeError(
                "There is at least 1 reference to internal data in the interpreter in the form of a numpy array or "
                "slice. Be sure to only hold the function returned from tensor() if you are using raw data access."
            )


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


class Interpreter:
    """Runs a .tflite model with the methods of ``ai_edge_litert.interpreter.Interpreter``, and its errors.

    What concerns LiteRT's CPU kernels alone is checked and has no effect: ``experimental_op_resolver_type`` and the
    other experimental arguments. Like LiteRT's, it is not thread-safe.

    :meth:`allocate_tensors` checks the model, and raises what :func:`tflgpu.compile` does of it; the first
    :meth:`invoke` with new shapes compiles, unless the cache has the model.

    Args:
        model_path: The file; exactly one of path and content is given.
        model_content: The bytes of a file.
        experimental_delegates: Of :func:`load_delegate`; the first one says on which device and how to run the model.
        num_threads: The number of cores of a device that is a CPU, as ``Options.threads``, which wins over it.
        experimental_op_resolver_type: Checked, without effect.
        experimental_preserve_all_tensors: Every tensor that an operator computes can be read, of the main subgraph and
            of signatures. Nothing is fused then, and every run copies all of them from the device.
        experimental_disable_delegate_clustering: Without effect.
        experimental_default_delegate_latest_features: Without effect.
        experimental_compress_quantization_zero_points: As LiteRT's, of the details of tensors.
        experimental_disable_delegate_node_fusion: Without effect.
        experimental_force_delegate_node_profiling: Without effect.
        options: As for :func:`tflgpu.compile`, without those in ``DECIDED_BY_FILE_OR_METHODS``.

    Raises:
        ValueError: Arguments are wrong, or the file cannot be read or is no model.
    """

    def __init__(
        self,
        model_path: str | bytes | PathLike[str] | None = None,
        model_content: Buffer | None = None,
        experimental_delegates: Iterable[object] | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: object = OpResolverType.AUTO,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
        *,
        options: Options | None = None,
    ) -> None:
        check_resolver(experimental_op_resolver_type)
        if num_threads is not None:
            if not isinstance(num_threads, int):
                raise ValueError("type of num_threads should be int")
            if num_threads < 1:
                raise ValueError("num_threads should >= 1")
        self._compress_zero_points = experimental_compress_quantization_zero_points
        content = read_content(model_path, model_content)
        chosen = check_options(chosen_options(experimental_delegates or (), options))
        if num_threads is not None and chosen.threads is None:
            chosen = replace(chosen, threads=min(num_threads, GREATEST_SIZE))
        require_defaults(chosen, DECIDED_BY_FILE_OR_METHODS, "an Interpreter goes by the file and its methods")
        self._model = LoadedModel(content, chosen, preserve=bool(experimental_preserve_all_tensors))
        self._main = self._model.tensors(0)
        self._views = Views()

    def allocate_tensors(self) -> None:
        """Check the model for the current shapes of the inputs, if not yet done. New shapes set all inputs to zeros.

        Raises RuntimeError if the model cannot run: a TflgpuError, as :func:`tflgpu.compile` does.
        """
        self._views.check_released()
        self._main.allocate()

    def invoke(self) -> None:
        """Run the model. Raises RuntimeError before :meth:`allocate_tensors`, and if the run fails."""
        self._views.check_released()
        self._main.invoke()

    def set_tensor(self, tensor_index: int, value: ArrayLike) -> None:
        """Copy a value into a tensor. The next run keeps it for inputs only.

        Args:
            tensor_index: The tensor's number in the main subgraph.
            value: An array of the tensor's shape and element type.

        Raises:
            ValueError: The shape or the type is another one, the tensor is a constant or a variable, or
                :meth:`allocate_tensors` was not called.
        """
        self._main.set(tensor_index, value)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Array:
        """Return a copy of an input, an output or a constant; of any other tensor, if all are preserved.

        Args:
            tensor_index: The tensor's number in its subgraph.
            subgraph_index: The subgraph's number. Others than the main one have values after a
                :class:`SignatureRunner` has run them.

        Raises:
            ValueError: The tensor has no value, or there is no such tensor or subgraph.
        """
        if type(subgraph_index) is int and subgraph_index == 0:  # as in most calls
            return self._main.value(tensor_index).copy()
        count = self.num_subgraphs()
        if not 0 <= whole_number("subgraph_index", subgraph_index, LEAST_INDEX) < count:
            raise ValueError(f"Invalid subgraph index {subgraph_index} exceeds max subgraph index {count}")
        return self._model.tensors(subgraph_index).value(tensor_index).copy()

    def tensor(self, tensor_index: int) -> Callable[[], Array]:
        """Return a function that gives the tensor's own array, not a copy.

        A run reads what is written to an input's array. Hold the function, not the array: as long as there is an
        array, running and allocating raise RuntimeError.

        Args:
            tensor_index: The tensor's number in the main subgraph.
        """
        return lambda: self._views.of(self._main.value(tensor_index))

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int] | Array, strict: bool = False) -> None:
        """Give an input another shape. It takes effect at the next :meth:`allocate_tensors`.

        Args:
            input_index: The input's number in the main subgraph.
            tensor_size: The new shape.
            strict: Whether to change only sizes that the file leaves open.

        Raises:
            RuntimeError: There is no such tensor, or ``strict`` forbids the shape.
        """
        self._views.check_released()
        self._main.resize(input_index, tensor_size, strict)

    def reset_all_variables(self) -> None:
        """Set the model's variables to their initial values."""
        self._model.reset_variables()

    def get_input_details(self) -> list[Details]:
        """LiteRT's description of each input, in order."""
        return list(map(self._main.details, self._model.subgraphs[0].inputs))

    def get_output_details(self) -> list[Details]:
        """LiteRT's description of each output, in order; after :meth:`allocate_tensors` with the compiled shapes.

        A shape that depends on the inputs' values is that of the last run.
        """
        return list(map(self._main.details, self._model.subgraphs[0].outputs))

    def get_tensor_details(self, subgraph_index: int = 0) -> list[Details]:
        """Return LiteRT's description of every tensor of a subgraph.

        Args:
            subgraph_index: The subgraph's number.

        Raises:
            ValueError: There is no such subgraph.
        """
        count = self.num_subgraphs()
        if not 0 <= whole_number("subgraph_index", subgraph_index, LEAST_INDEX) < count:
            raise ValueError(
                f"subgraph_index is out of range: {subgraph_index} for the model, which has {count} subgraphs."
            )
        tensors = self._model.tensors(subgraph_index)
        return [tensors.details(t.index) for t in self._model.subgraphs[subgraph_index].tensors]

    def num_subgraphs(self) -> int:
        """Return the number of subgraphs in the file."""
        return len(self._model.subgraphs)

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Names of inputs and outputs by signature."""
        return {s.key: {"inputs": list(s.inputs), "outputs": list(s.outputs)} for s in self._model.signatures}

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """Return a runner for a signature.

        Signatures of different subgraphs are compiled separately. They share resource variables, and equal weights are
        on the device once.

        Args:
            signature_key: The signature's name; None stands for the only one.

        Raises:
            ValueError: There is no such signature, or None is given and there are several.
        """
        signatures = self._model.signatures
        if signature_key is None:
            if len(signatures) != 1:
                raise ValueError(
                    f"SignatureDef signature_key is None and model has {len(signatures)} Signatures. None is only "
                    "allowed when the model has 1 SignatureDef"
                )
            signature_key = signatures[0].key
        return SignatureRunner(self, signature_key)

    @property
    def experimental_compress_quantization_zero_points(self) -> bool:
        """The constructor's argument."""
        return self._compress_zero_points

    # LiteRT's methods of these names are private, and well known among those who print a model.

    def _get_ops_details(self) -> list[Details]:
        """LiteRT's description of each operator of the main subgraph."""
        return list(map(self._get_op_details, range(len(self._model.subgraphs[0].operators))))

    def _get_op_details(self, op_index: int) -> Details:
        """LiteRT's description of an operator of the main subgraph. Raises ValueError for an unknown one."""
        main = self._model.subgraphs[0]
        if not 0 <= op_index < len(main.operators):
            raise ValueError("Invalid node index")
        return operator_details(main.operators[op_index], main.tensors)

    def _get_full_signature_list(self) -> dict[str, dict[str, dict[str, int]]]:
        """Tensor indices by names of inputs and outputs, by signature."""
        return {s.key: {"inputs": dict(s.inputs), "outputs": dict(s.outputs)} for s in self._model.signatures}

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int) -> Details:
        """LiteRT's description of a tensor. Raises ValueError for an unknown one."""
        return self._model.tensors(subgraph_index).details(tensor_index)


class InterpreterWithCustomOps(Interpreter):
    """An :class:`Interpreter` for programs that register kernels in LiteRT's process.

    Nothing here can run those kernels. A model that has such operators is refused by :meth:`allocate_tensors`, unless
    a package adds them to tflgpu (docs/guide/custom-operators.md); other models run.

    custom_op_registerers: functions, which are not called. Names of functions raise ValueError, as unknown ones do in
    LiteRT, and anything else TypeError.
    """

    def __init__(
        self, custom_op_registerers: Iterable[str | Callable[[int], None]] | None = None, **kwargs: Any
    ) -> None:
        for registerer in custom_op_registerers or ():
            if isinstance(registerer, str):
                raise ValueError(
                    f"Looking up symbol '{registerer}' failed: kernels of LiteRT's process cannot run on a device; "
                    "the documentation (Writing an operator in ten minutes) says how tflgpu gets operators"
                )
            if not callable(registerer):
                raise TypeError(f"a function that registers an operator was expected, not {registerer!r}")
        super().__init__(**kwargs)
