"""Signatures of a model that was read once: their tensors as LiteRT describes them, and what computes them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

import tflgpu.api
from tflgpu.errors import UnsupportedError
from tflgpu.frontend.entry_point import entry_point
from tflgpu.graph.layout import Shape
from tflgpu.interpreter.subgraph_tensors import check_strict
from tflgpu.model.model_source import ModelContent
from tflgpu.model.reader import read_model
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.opening import lower_for_device
from tflgpu.options import Options, Shapes
from tflgpu.runtime.device_memory import Queue
from tflgpu.tensor_buffer import Memory

if TYPE_CHECKING:
    from tflgpu.frontend.entry_point import EntryPoint
    from tflgpu.model.model import FileTensor


# Types of LiteRT's buffers: memory of the host, and buffers of OpenCL.
SUPPORTED_TYPES = (1, 10)

Details = dict[str, Any]


class SignatureModel:
    """Compiled when it is first needed, and anew after an input was resized where the file leaves nothing open.

    key: as LiteRT names it. options: of the compilation, with the signature. queue: on which to run, if there is one.
    first: the file's first signature, beside which this one runs, with copies of equal weights; None for itself.
    """

    def __init__(
        self,
        content: ModelContent,
        key: str,
        entry: EntryPoint,
        options: Options,
        queue: Queue | None,
        first: SignatureModel | None = None,
    ) -> None:
        self.key, self._content, self._entry, self._options, self._queue = key, content, entry, options, queue
        self._first = first
        self._shapes = [tensor.shape for _, tensor in entry.inputs]
        self._compiled: tflgpu.api.CompiledModel | None = None
        self._previous: tflgpu.api.CompiledModel | None = None  # for other shapes, until this one is compiled
        self._output_shapes: list[Shape] | None = None  # where inputs have other shapes than it was compiled for

    @property
    def details(self) -> Details:
        """The key, and the names of inputs and outputs in the order in which a run takes them."""
        return {"key": self.key, "inputs": self.names("inputs"), "outputs": self.names("outputs")}

    def names(self, side: str) -> list[str]:
        """Return the names of inputs or outputs, in the signature's order.

        Args:
            side: ``"inputs"`` or ``"outputs"``.
        """
        return [name for name, _ in self._tensors(side)]

    def number(self, side: str, name: str) -> int:
        """Return the place of an input or output.

        Args:
            side: ``"inputs"`` or ``"outputs"``.
            name: Its name in the signature.

        Raises:
            RuntimeError: There is none of this name.
        """
        names = self.names(side)
        if name not in names:
            raise RuntimeError(f"signature {self.key!r} has no {name!r} among its {side}: {names}")
        return names.index(name)

    def tensor_details(self, side: str) -> dict[str, Details]:
        """Return LiteRT's description of the inputs or outputs, with the shapes that they have by now.

        Args:
            side: ``"inputs"`` or ``"outputs"``.
        """
        return {
            name: {"name": tensor.name, "index": tensor.index, "dtype": tensor.dtype, "shape": list(shape)}
            for (name, tensor), shape in zip(self._tensors(side), self._shapes_of(side), strict=True)
        }

    def requirements(self, side: str, number: int) -> Details:
        """Return the bytes that an input or output takes, and the types of buffers that it may be in.

        Args:
            side: ``"inputs"`` or ``"outputs"``.
            number: Its place among these.
        """
        tensor, shape = self._tensor(side, number)
        return {"buffer_size": prod(shape) * _dtype(tensor).itemsize, "supported_types": list(SUPPORTED_TYPES)}

    def new_memory(self, side: str, number: int) -> Memory:
        """Return new memory for an input or output, filled with zeros.

        Args:
            side: ``"inputs"`` or ``"outputs"``.
            number: Its place among these.
        """
        tensor, shape = self._tensor(side, number)
        return Memory.zeros(shape, _dtype(tensor))

    def resize(self, number: int, dims: Sequence[int], strict: bool) -> None:
        """Give an input another shape, from the next run on.

        Args:
            number: Its place among the inputs.
            dims: The new shape; each size is 1 or more.
            strict: Change only sizes that the file leaves open.

        Raises:
            RuntimeError: A size is less than 1, or ``strict`` forbids the change.
        """
        tensor, _ = self._tensor("inputs", number)
        shape = tuple(dims)
        if min(shape, default=1) < 1:
            raise RuntimeError(f"input {number} cannot have shape {list(shape)}; each size has to be 1 or more")
        if strict:
            check_strict(tensor, shape)
        if shape != self._shapes[number]:
            self._shapes[number], self._output_shapes = shape, None
            if self._compiled is not None and not all(map(_takes, self._compiled.inputs, self._shapes)):
                self._compile_anew()

    def _compile_anew(self) -> None:
        self._previous, self._compiled = self._compiled or self._previous, None

    def compiled(self) -> tflgpu.api.CompiledModel:
        """Return a model that takes the current shapes of the inputs. Raises what :func:`tflgpu.compile` does."""
        if self._compiled is None:
            try:
                self._compiled = self._compile()
            except ValueError as error:
                raise RuntimeError(f"the model cannot be prepared: {error}") from error
            self._previous = None
        return self._compiled

    @property
    def _is_resized(self) -> bool:
        return self._shapes != [tensor.shape for _, tensor in self._entry.inputs]

    def _compile(self) -> tflgpu.api.CompiledModel:
        options = self._resized_options()
        first = None if self._first is None else self._first.compiled()
        if self._first and first and not self._is_resized and not self._first._is_resized:
            return first.signatures[self.key]
        beside = self._previous or first
        if beside is None:
            return tflgpu.api.compile(self._content.bytes, options, queue=self._queue)
        return tflgpu.api.compile_beside(beside, options)

    def _resized_options(self) -> Options:
        if not self._is_resized:  # so that the cache finds the model
            return self._options
        shapes = dict(zip(self.names("inputs"), self._shapes, strict=True))
        return replace(self._options, shapes=Shapes(inputs=shapes))

    def is_on_device(self) -> bool:
        """Whether every operator runs on the device."""
        report = self._compiled.report if self._compiled else tflgpu.api.inspect(self._content.bytes, self._options)
        return all(each.device == "device" for each in report.operators)

    def run(self, inputs: Sequence[Memory], outputs: Sequence[Memory]) -> None:
        """Compute the outputs.

        Args:
            inputs: Memory of each input, in the signature's order.
            outputs: Memory of each output; it is written.

        Raises:
            RuntimeError: Some memory does not fit, or the run fails.
        """
        self._shapes_of("outputs")  # which may need another model
        model = self.compiled()
        values = self._fitting("inputs", model.inputs, inputs)
        places = self._fitting("outputs", model.outputs, outputs)
        named = {info.name: n for n, info in enumerate(model.outputs)}
        try:
            results = model.run(values, {name: places[n] for name, n in named.items() if outputs[n].array is None})
        except ValueError as error:
            raise RuntimeError(f"the model cannot run on these buffers: {error}") from error
        for name, result in results.items():
            outputs[named[name]].write(result)

    def _fitting(self, side: str, infos: Sequence[TensorInfo], given: Sequence[Memory]) -> list[Any]:
        """Arrays of the tensors' shapes in the memory that was given. Raises RuntimeError if it does not fit."""
        if len(given) != len(infos):
            raise RuntimeError(f"{len(given)} {side} were given; signature {self.key!r} has {len(infos)}")
        arrays = []
        for info, shape, memory in zip(infos, self._shapes_of(side), given, strict=True):
            if memory.dtype_name != info.dtype or memory.size != prod(shape):
                raise RuntimeError(
                    f"{side[:-1]} {info.name!r} has {prod(shape)} elements of {info.dtype}; the buffer has "
                    f"{memory.size} of {memory.dtype_name}"
                )
            arrays.append(memory.shaped(shape))
        return arrays

    def close(self) -> None:
        """Release the device memory."""
        if self._compiled is not None:
            self._compiled.close()

    def _tensors(self, side: str) -> tuple[tuple[str, FileTensor], ...]:
        return self._entry.inputs if side == "inputs" else self._entry.outputs

    def _shapes_of(self, side: str) -> list[Shape]:
        if side == "inputs":
            return self._shapes
        compiled = self.compiled()
        if self._shapes == [info.shape for info in compiled.inputs]:
            return [info.shape for info in compiled.outputs]
        if self._output_shapes is None:
            try:
                lowered = lower_for_device(self._content.bytes, self._resized_options())
            except ValueError as error:
                raise RuntimeError(f"the model cannot be prepared: {error}") from error
            if lowered is None:
                self._compile_anew()
                return self._shapes_of(side)
            self._output_shapes = [info.shape for _, info in lowered.interface()[1]]
        return self._output_shapes

    def _tensor(self, side: str, number: int) -> tuple[FileTensor, Shape]:
        tensors = self._tensors(side)
        if not 0 <= number < len(tensors):
            raise RuntimeError(f"signature {self.key!r} has no {side[:-1]} {number}; it has {len(tensors)}")
        return tensors[number][1], self._shapes_of(side)[number]


def _takes(info: TensorInfo, shape: Shape) -> bool:
    """Whether a compiled model takes an input of this shape."""
    sizes = enumerate(zip(info.shape, shape, strict=False))
    return len(info.shape) == len(shape) and all(n in info.free_axes or old == new for n, (old, new) in sizes)


def _dtype(tensor: FileTensor) -> np.dtype[Any]:
    """Raise UnsupportedError for strings, handles and numbers that fill no byte."""
    try:
        return np.dtype(tensor.dtype)
    except TypeError:
        reason = f"tensor {tensor.name!r} has element type {tensor.dtype}, of which there are no buffers"
        raise UnsupportedError((reason,)) from None


# LiteRT's key of the main subgraph, in a file that names no signature.
PLACEHOLDER = "<placeholder signature>"


class LoadedSignatures:
    """All signatures, of which the first one is compiled at once. They run on one queue of the device.

    Raises what :func:`tflgpu.compile` does.
    """

    def __init__(self, content: ModelContent, options: Options, queue: Queue | None) -> None:
        with content.naming_file():
            model = read_model(content.bytes)
        keys = [signature.key for signature in model.signatures]
        main = entry_point(model)
        if keys and model.signatures[0].subgraph == 0:
            entries = [main, *(entry_point(model, key) for key in keys[1:])]
        else:
            entries = [entry_point(model, key) for key in keys] or [main]
        self.signatures: list[SignatureModel] = []
        for key, entry in zip(keys or [PLACEHOLDER], entries, strict=True):
            # Without a key the cache also finds what tflgpu.compile has compiled.
            wanted = replace(options.interface, signature=None if entry is main else key)
            first = self.signatures[0] if self.signatures else None
            self.signatures.append(
                SignatureModel(content, key, entry, replace(options, interface=wanted), queue, first)
            )
        self.signatures[0].compiled()

    def index(self, key: str) -> int:
        """Return the place of a signature, -1 for an unknown one.

        Args:
            key: Its name in the file.

        Raises:
            TypeError: The key is no text.
        """
        if not isinstance(key, str):
            raise TypeError(f"the key of a signature is a text, not {key!r}")
        return next((number for number, each in enumerate(self.signatures) if each.key == key), -1)

    def by_key(self, key: str) -> SignatureModel:
        """Return a signature by its name.

        Args:
            key: Its name in the file.

        Raises:
            RuntimeError: There is no such signature.
            TypeError: The key is no text.
        """
        number = self.index(key)
        if number < 0:
            raise RuntimeError(f"Signature not found: {key}; the model has {[each.key for each in self.signatures]}")
        return self.signatures[number]

    def by_index(self, number: int) -> SignatureModel:
        """Return a signature by its place.

        Args:
            number: Its place in the file, from 0 on.

        Raises:
            RuntimeError: There is no such signature.
            TypeError: It is no whole number.
        """
        if not 0 <= operator.index(number) < len(self.signatures):
            raise RuntimeError(f"there is no signature {number}; the model has {len(self.signatures)}")
        return self.signatures[number]

    def close(self) -> None:
        """Release the device memory."""
        for signature in self.signatures:
            signature.close()
