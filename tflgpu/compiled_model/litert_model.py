"""LiteRT's ``CompiledModel`` on an OpenCL device."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fsdecode
from typing import Any, NoReturn, cast

import tflgpu.options
from tflgpu.compiled_model.litert_options import Environment, Options, chosen_options
from tflgpu.compiled_model.signature_model import Details, LoadedSignatures
from tflgpu.errors import ModelError
from tflgpu.hardware_accelerator import HardwareAccelerator
from tflgpu.model.model_source import Buffer, ModelContent
from tflgpu.tensor_buffer import Memory, TensorBuffer


class ClosedModelError(ValueError, AttributeError):
    """A method of a closed model. tflgpu raises ValueError there, and LiteRT AttributeError."""


class _Closed:
    """In place of a closed model's signatures."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ClosedModelError("this model is closed; load it again")


class CompiledModel:
    """A model with the methods of ``ai_edge_litert.compiled_model.CompiledModel``, and its errors.

    :meth:`from_file` and :meth:`from_buffer` make it. Each signature is compiled for the device when it is first
    needed, the first one at once. Like LiteRT's, it is not thread-safe. A context manager.

    Args:
        c_model_ptr: What :meth:`from_file` gives it.
        environment: Kept as long as the model.
    """

    def __init__(self, c_model_ptr: Any, environment: Environment) -> None:
        self._model: LoadedSignatures = c_model_ptr
        self._environment = environment

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the device memory; other methods are an error afterwards, closing again is not. Buffers stay."""
        if not isinstance(self._model, _Closed):
            self._model.close()
            self._model = cast(LoadedSignatures, _Closed())

    @classmethod
    def from_file(
        cls,
        model_path: str | bytes | PathLike[str],
        hardware_accel: HardwareAccelerator | None = None,
        environment: Environment | None = None,
        options: Options | tflgpu.options.Options | None = None,
    ) -> CompiledModel:
        """Load a .tflite file, and compile its first signature.

        Args:
            model_path: Of the file.
            hardware_accel: On which processors to run. Without it, and without options, the model runs on the best
                device, where LiteRT takes the CPU.
            environment: What the model shares with others, by default nothing.
            options: LiteRT's options, or those of :class:`tflgpu.Options` but for signature, outputs and shapes.

        Returns:
            The model.

        Raises:
            RuntimeError: The file cannot be read, is no model, or cannot run on the device; each
                :class:`tflgpu.TflgpuError` is one.
            ValueError: Both ``hardware_accel`` and options are given, options do not fit, or the environment is closed.
            TypeError: The path is none.
        """
        if not isinstance(model_path, str | bytes | PathLike):
            raise TypeError(f"model_path is of type {type(model_path).__name__}; a path was expected")
        path = fsdecode(model_path)
        try:
            content = ModelContent(path)
            content.bytes  # noqa: B018 - it is read here
        except (OSError, ValueError) as error:
            raise ModelError(f"Could not open '{path}': {error}") from error
        return cls._loaded(content, hardware_accel, environment, options)

    @classmethod
    def from_buffer(
        cls,
        model_data: Buffer,
        hardware_accel: HardwareAccelerator | None = None,
        environment: Environment | None = None,
        options: Options | tflgpu.options.Options | None = None,
    ) -> CompiledModel:
        """Load a model from the bytes of a .tflite file, and compile its first signature.

        Args:
            model_data: The bytes.
            hardware_accel: As of :meth:`from_file`.
            environment: As of :meth:`from_file`.
            options: As of :meth:`from_file`.

        Returns:
            The model.

        Raises:
            RuntimeError: The bytes are no model, or it cannot run on the device.
            ValueError: Both ``hardware_accel`` and options are given, options do not fit, or the environment is closed.
            TypeError: There are no bytes.
        """
        if isinstance(model_data, str | PathLike):
            raise TypeError(f"model_data is of type {type(model_data).__name__}; the bytes of a model were expected")
        return cls._loaded(ModelContent(model_data), hardware_accel, environment, options)

    @classmethod
    def _loaded(
        cls,
        content: ModelContent,
        hardware_accel: HardwareAccelerator | None,
        environment: Environment | None,
        options: Options | tflgpu.options.Options | None,
    ) -> CompiledModel:
        shared = environment or Environment.create()
        chosen = chosen_options(options, hardware_accel)
        return cls(LoadedSignatures(content, chosen, shared.capsule.queue), shared)

    @property
    def environment(self) -> Environment:
        """Environment that the model shares with others."""
        return self._environment

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Names of inputs and outputs by signature, in the order in which :meth:`run_by_index` takes them."""
        return {s.key: {side: s.names(side) for side in ("inputs", "outputs")} for s in self._model.signatures}

    def get_signature_by_index(self, index: int) -> dict[str, Any]:
        """Return the key and the names of inputs and outputs of a signature.

        Args:
            index: Its place in the file.

        Raises:
            RuntimeError: There is no such signature.
        """
        return self._model.by_index(index).details

    def get_num_signatures(self) -> int:
        """Return the number of signatures: 1 for a file that names none."""
        return len(self._model.signatures)

    def get_signature_index(self, key: str) -> int:
        """Return the place of a signature, -1 for an unknown one.

        Args:
            key: Its name in the file.

        Raises:
            TypeError: The key is no text.
        """
        return self._model.index(key)

    def get_input_tensor_details(self, signature_key: str) -> dict[str, Details]:
        """Return LiteRT's description of each input by name.

        Args:
            signature_key: The signature's name in the file.

        Raises:
            RuntimeError: There is no such signature.
        """
        return self._model.by_key(signature_key).tensor_details("inputs")

    def get_output_tensor_details(self, signature_key: str) -> dict[str, Details]:
        """Return LiteRT's description of each output by name.

        Args:
            signature_key: The signature's name in the file.

        Raises:
            RuntimeError: There is no such signature.
        """
        return self._model.by_key(signature_key).tensor_details("outputs")

    def get_input_buffer_requirements(self, input_index: int, signature_index: int = 0) -> Details:
        """Return the bytes that an input takes, and LiteRT's numbers of the types of buffers that it may be in.

        Args:
            input_index: Of the signature.
            signature_index: Of the signature.

        Returns:
            ``buffer_size``, and ``supported_types``: 1, memory of the host, and 10, buffers of OpenCL.

        Raises:
            RuntimeError: There is no such input or signature.
        """
        return self._model.by_index(signature_index).requirements("inputs", operator.index(input_index))

    def get_output_buffer_requirements(self, output_index: int, signature_index: int = 0) -> Details:
        """Return the bytes that an output takes, and the types of buffers that it may be in.

        Args:
            output_index: Its place among the signature's outputs.
            signature_index: The signature's place in the file.

        Raises:
            RuntimeError: There is no such signature or output.
        """
        return self._model.by_index(signature_index).requirements("outputs", operator.index(output_index))

    def is_fully_accelerated(self) -> bool:
        """Whether every operator of every signature runs on the device."""
        return all(signature.is_on_device() for signature in self._model.signatures)

    def create_input_buffer_by_name(self, signature_key: str, input_name: str) -> TensorBuffer:
        """Return a new buffer for an input, filled with zeros.

        Args:
            signature_key: The signature's name in the file.
            input_name: The input's name in the signature.

        Raises:
            RuntimeError: There is no such signature or input.
        """
        return self._named_buffer("inputs", signature_key, input_name)

    def create_output_buffer_by_name(self, signature_key: str, output_name: str) -> TensorBuffer:
        """Return a new buffer for an output, filled with zeros.

        Args:
            signature_key: The signature's name in the file.
            output_name: The output's name in the signature.

        Raises:
            RuntimeError: There is no such signature or output.
        """
        return self._named_buffer("outputs", signature_key, output_name)

    def create_input_buffers(self, signature_index: int) -> list[TensorBuffer]:
        """Return a new buffer for each input, filled with zeros.

        Args:
            signature_index: The signature's place in the file.

        Raises:
            RuntimeError: There is no such signature.
        """
        return self._buffers("inputs", signature_index)

    def create_output_buffers(self, signature_index: int) -> list[TensorBuffer]:
        """Return a new buffer for each output, filled with zeros.

        Args:
            signature_index: The signature's place in the file.

        Raises:
            RuntimeError: There is no such signature.
        """
        return self._buffers("outputs", signature_index)

    def resize_input_tensor(
        self, input_index: int, dims: Sequence[int], signature_index: int = 0, strict: bool = True
    ) -> None:
        """Give an input another shape. The signature is compiled for it when it is next needed.

        Args:
            input_index: Of the signature.
            dims: The shape.
            signature_index: Of the signature.
            strict: Change only sizes that the file leaves open.

        Raises:
            RuntimeError: There is no such input or signature, or it cannot have this shape.
            TypeError: ``dims`` are no whole numbers.
        """
        shape = [operator.index(size) for size in dims]
        self._model.by_index(signature_index).resize(operator.index(input_index), shape, strict)

    def resize_input_tensor_by_name(
        self, signature_key: str, input_name: str, dims: Sequence[int], strict: bool = True
    ) -> None:
        """Resize an input by names.

        Args:
            signature_key: The signature's name in the file.
            input_name: The input's name in the signature.
            dims: The new shape; each size is 1 or more.
            strict: Change only sizes that the file leaves open.

        Raises:
            ValueError: There is no such signature or input.
            RuntimeError: The input cannot have this shape.
        """
        number = self.get_signature_index(signature_key)
        if number < 0:
            raise ValueError(f"Unknown signature: {signature_key}")
        names = self._model.signatures[number].names("inputs")
        if input_name not in names:
            raise ValueError(f"Unknown input '{input_name}' for signature '{signature_key}'")
        self.resize_input_tensor(names.index(input_name), dims, number, strict)

    def run_by_name(
        self, signature_key: str, input_map: Mapping[str, TensorBuffer], output_map: Mapping[str, TensorBuffer]
    ) -> None:
        """Run a signature on buffers by name, and wait for it. Further names have no effect.

        Args:
            signature_key: Of the signature.
            input_map: A buffer for each input. Unlike in LiteRT, none may be missing.
            output_map: A buffer for each output.

        Raises:
            RuntimeError: Unknown signature, missing buffers, buffers that do not fit, or a run that fails.
            ValueError: A buffer was destroyed.
        """
        inputs, outputs = ({name: b.capsule for name, b in given.items()} for given in (input_map, output_map))
        signature = self._model.by_key(signature_key)
        for side, given in (("inputs", inputs), ("outputs", outputs)):
            missing = [name for name in signature.names(side) if name not in given]
            if missing:
                raise RuntimeError(f"The given map is missing some TensorBuffers, of {side} {missing}")
        signature.run(
            *(
                [_memory(given[name]) for name in signature.names(side)]
                for side, given in (("inputs", inputs), ("outputs", outputs))
            )
        )

    def run_by_index(
        self, signature_index: int, input_buffers: Iterable[TensorBuffer], output_buffers: Iterable[TensorBuffer]
    ) -> None:
        """Run a signature on buffers in order, and wait for it.

        Args:
            signature_index: Of the signature.
            input_buffers: One for each input.
            output_buffers: One for each output.

        Raises:
            RuntimeError: Unknown signature, too few or too many buffers, buffers that do not fit, or a run that fails.
            ValueError: A buffer was destroyed.
        """
        inputs, outputs = ([_memory(b.capsule) for b in given] for given in (input_buffers, output_buffers))
        self._model.by_index(signature_index).run(inputs, outputs)

    def _buffers(self, side: str, signature_index: int) -> list[TensorBuffer]:
        signature = self._model.by_index(signature_index)
        count = len(signature.names(side))
        return [TensorBuffer(signature.new_memory(side, number), self._environment) for number in range(count)]

    def _named_buffer(self, side: str, key: str, name: str) -> TensorBuffer:
        signature = self._model.by_key(key)
        return TensorBuffer(signature.new_memory(side, signature.number(side, name)), self._environment)

    def __repr__(self) -> str:
        if isinstance(self._model, _Closed):
            return "<CompiledModel, closed>"
        return f"<CompiledModel: signatures {', '.join(s.key for s in self._model.signatures)}>"


def _memory(capsule: Any) -> Memory:
    if not isinstance(capsule, Memory):
        raise RuntimeError("a buffer of another library was given, or one without memory")
    return capsule
