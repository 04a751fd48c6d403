"""The tensors of one subgraph as an interpreter's caller sees them, and the compiled model that computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tflgpu.api import CompiledModel, compile_beside, compile_with_variables, reset_variable_tensors
from tflgpu.checking.option_fields import whole_number
from tflgpu.errors import CacheMissError, DeviceError
from tflgpu.graph.layout import Shape
from tflgpu.opening import lower_for_device
from tflgpu.options import Options, Shapes
from tflgpu.runtime.model_variables import ModelVariables
from tflgpu.runtime.runner import RowPieces

if TYPE_CHECKING:
    from tflgpu.frontend.entry_point import EntryPoint
    from tflgpu.frontend.frontend import Frontend
    from tflgpu.model.model import FileTensor, Operator


# LiteRT's Python types of elements that numpy does not have, or has under another name.
TYPES: dict[str, Any] = {
    "bool": np.bool_,
    "string": np.bytes_,
    "resource": np.object_,
    "variant": np.object_,
    "int4": np.int8,
    "bfloat16": np.uint16,  # LiteRT's own interpreter cannot describe these
}


def tensor_details(tensor: FileTensor, shape: Shape | None = None) -> dict[str, Any]:
    """Return the dictionary that LiteRT's ``get_tensor_details`` gives for a tensor.

    Args:
        tensor: A tensor of the file.
        shape: Replaces the file's; None to keep that.
    """
    shape = tensor.shape if shape is None else shape
    quantization = tensor.quantization
    scales = quantization.scale if quantization else ()
    zero_points = quantization.zero_point if quantization else ()
    return {
        "name": tensor.name,
        "index": tensor.index,
        "shape": np.array(shape, np.int32),
        # A file names open dimensions or nothing; in place of nothing LiteRT gives the shape.
        "shape_signature": np.array(tensor.signature if -1 in tensor.signature else shape, np.int32),
        "dtype": TYPES.get(tensor.dtype) or np.dtype(tensor.dtype).type,
        # The old form has room for one pair only.
        "quantization": (scales[0], zero_points[0]) if len(scales) == 1 else (0.0, 0),
        "quantization_parameters": {
            "scales": np.array(scales, np.float32),
            "zero_points": np.array(zero_points, np.int32),
            "quantized_dimension": quantization.axis if quantization else 0,
            "block_size": 0,
        },
        "sparsity_parameters": tensor.sparse.parameters if tensor.sparse else {},
    }


def operator_details(operator: Operator, tensors: Sequence[FileTensor]) -> dict[str, Any]:
    """Return the dictionary that LiteRT's ``_get_ops_details`` gives for an operator.

    Args:
        operator: The operator.
        tensors: All tensors of its subgraph.
    """
    operands, results = (
        [tensor_details(tensors[t])["dtype"] for t in side if t >= 0] for side in (operator.inputs, operator.outputs)
    )
    return {
        "index": operator.index,
        "op_name": operator.code,
        "inputs": np.array(operator.inputs, np.int32),
        "outputs": np.array(operator.outputs, np.int32),
        "operand_types": operands,
        "result_types": results,
    }


Array = NDArray[Any]

Details = dict[str, Any]

LEAST_INDEX = -(2**31)  # of what LiteRT takes for an index, and then finds none


class SignatureCompiler:
    """Compiles the signatures of a file, so that they share copies of equal weights."""

    def __init__(self, source: bytes) -> None:
        self._source, self._variables = source, ModelVariables()
        self._first: Callable[[], CompiledModel | None] = lambda: None  # the model that was compiled first

    def known(self, options: Options) -> CompiledModel | None:
        """Return the signature if the cache has it.

        Args:
            options: With the shapes of inputs and the policy of the cache.

        Returns:
            The compiled signature; None if it has to be compiled.

        Raises:
            CacheMissError: The cache is required to have the signature and does not. All errors of :meth:`compile` may
                be
                raised, too.
        """
        if options.cache == "off":
            return None
        try:
            return self.compile(replace(options, cache="require"))
        except CacheMissError:
            if options.cache == "require":
                raise
            return None

    def lowered(self, options: Options) -> Frontend | None:
        """Return the model before planning, or None: see :func:`tflgpu.opening.lower_for_device`.

        Args:
            options: With the shapes of inputs.
        """
        return lower_for_device(self._source, options)

    def compile(self, options: Options) -> CompiledModel:
        """Compile a signature, with the weights of the one that was compiled first, as long as that lives.

        Args:
            options: With the shapes of inputs and the name of the signature.
        """
        first = self._first()
        if first is not None and first.options.interface.signature != options.interface.signature:
            return compile_beside(first, options)
        compiled = compile_with_variables(self._source, options, self._variables)
        if first is None:
            self._first = ref(compiled)
        return compiled


class Former(NamedTuple):
    """The model of shapes that were allocated before, which stays as long as one more."""

    shapes: Mapping[str, Shape]
    model: CompiledModel
    options: Options
    lowered: Frontend | None


class SubgraphTensors:
    """Tensors that :meth:`allocate` prepares, :meth:`set` writes, :meth:`invoke` computes and :meth:`value` reads.

    options: of the compilation; with ``outputs`` it computes these tensors instead of the subgraph's outputs alone.
    """

    def __init__(
        self, compiler: SignatureCompiler, tensors: tuple[FileTensor, ...], entry: EntryPoint, options: Options
    ) -> None:
        self._compiler, self._tensors, self._entry, self._options = compiler, tensors, entry, options
        self._input_shapes = {tensor.index: tensor.shape for _, tensor in entry.inputs}
        self._input_indices = [tensor.index for _, tensor in entry.inputs]
        self._output_places = [(tensor.index, name) for name, tensor in entry.outputs]
        self._computed = frozenset(t.index for _, t in entry.outputs if t.data is None and t.sparse is None)
        self._settable = frozenset(t.index for _, t in entry.inputs if t.data is None and not t.is_variable)
        self._compiled: CompiledModel | None = None  # None also until the first result of these shapes is asked for
        self._chosen = options  # for the shapes that were allocated
        self._allocated_shapes: Mapping[str, Shape] | None = None
        self._lowered: Frontend | None = None  # for these shapes, if they were not in the cache
        self._former: Former | None = None  # of the shapes before
        self._pieces: RowPieces | None = None  # what runs these shapes as long as they are not compiled
        self._is_ready = False  # False before allocate, and again after a resize
        self._values: dict[int, Array] = {}  # of the inputs, of what the last run computed, and of what was set since

    def tensor(self, number: int) -> FileTensor:
        """Return a tensor as the file declares it.

        Args:
            number: Its index; negative ones are none.

        Raises:
            ValueError: The subgraph does not have the index.
            TypeError: It is no whole number.
        """
        index = whole_number("tensor_index", number, LEAST_INDEX)
        if not 0 <= index < len(self._tensors):
            raise ValueError(f"Invalid tensor index {index} exceeds max tensor index {len(self._tensors)}")
        return self._tensors[index]

    def details(self, number: int) -> Details:
        """Return LiteRT's description of a tensor, with the shape that its value has by now.

        Args:
            number: The tensor's index.
        """
        tensor = self.tensor(number)
        shape = self._input_shapes.get(tensor.index)
        if shape is None and tensor.data is None and tensor.index in self._values:
            shape = self._values[tensor.index].shape
        return tensor_details(tensor, shape)

    def resize(self, number: int, size: ArrayLike, strict: bool = False) -> None:
        """Give an input another shape, from the next :meth:`allocate` on; other tensors follow.

        Args:
            number: The tensor's index.
            size: The new shape: whole numbers, at least 0.
            strict: Change only sizes that the file leaves open.

        Raises:
            RuntimeError: The index is unknown, a size is negative, or ``strict`` forbids the change.
            ValueError: The shape has not one dimension, or no whole numbers.
            TypeError: The index or the shape has a wrong type.
            OverflowError: A size does not fit 32 bits.
        """
        if not 0 <= whole_number("input_index", number, LEAST_INDEX) < len(self._tensors):
            raise RuntimeError(f"tensor {number} cannot be resized; the subgraph has {len(self._tensors)} tensors")
        sizes = np.array(size, np.int32)
        if sizes.ndim != 1:
            raise ValueError(f"Shape should be 1D instead of {sizes.ndim}.")
        if not np.array_equal(sizes, np.asarray(size)):
            raise ValueError(f"tensor_size is {size!r}; whole numbers were expected")
        shape, tensor = tuple(sizes.tolist()), self._tensors[number]
        if min(shape, default=0) < 0:
            raise RuntimeError(f"tensor {number} cannot have shape {list(shape)}; no size may be negative")
        if strict:
            check_strict(tensor, shape)
        if shape != self._input_shapes.get(tensor.index, tensor.shape):
            self._is_ready = False
        if tensor.index in self._input_shapes:
            self._input_shapes[tensor.index] = shape

    def allocate(self) -> None:
        """Check the model for the current shapes of the inputs. Then all tensors that have a value are zero.

        What the cache does not have is compiled when :meth:`invoke` needs it: the shapes may change until then. Only
        if LiteRT has to try a part of the model, which it may refuse, is that compiled now.

        Raises RuntimeError if the model cannot run, or not for these shapes; TflgpuError is one.
        """
        if self._is_ready:
            return
        shapes = {name: self._input_shapes[tensor.index] for name, tensor in self._entry.inputs}
        if shapes != self._allocated_shapes:
            # The file's own shapes are not an option: so the cache finds the model.
            as_declared = shapes == {name: tensor.shape for name, tensor in self._entry.inputs}
            again = self._exchange_former(shapes)
            with self._preparing(shapes):
                if not again:
                    sizes = self._options if as_declared else replace(self._options, shapes=Shapes(inputs=shapes))
                    self._chosen, self._compiled = sizes, self._compiler.known(sizes)
                    self._lowered = None if self._compiled else self._compiler.lowered(sizes)
                if self._compiled is None and self._lowered is not None:
                    interface = self._lowered.interface()
                    sides = [info.shape for _, info in interface[0]], [info.shape for _, info in interface[1]]
                else:
                    compiled = self._model()
                    sides = [info.shape for info in compiled.inputs], [info.shape for info in compiled.outputs]
                self._values = {
                    tensor.index: _first_value(tensor, shape)
                    for named, found in zip((self._entry.inputs, self._entry.outputs), sides, strict=True)
                    for (_, tensor), shape in zip(named, found, strict=True)
                }
            self._allocated_shapes = shapes
        self._is_ready = True

    def _exchange_former(self, shapes: Mapping[str, Shape]) -> bool:
        """Keep what is compiled as the former model. Returns whether that of before has the new shapes; it is taken."""
        former = self._former
        if self._compiled is not None and self._allocated_shapes is not None:
            self._former = Former(self._allocated_shapes, self._compiled, self._chosen, self._lowered)
        self._compiled = self._allocated_shapes = self._lowered = self._pieces = None
        if former is None or former.shapes != shapes:
            return False
        _, self._compiled, self._chosen, self._lowered = former
        reset_variable_tensors(self._compiled)
        return True

    def _in_pieces(self) -> RowPieces | None:
        """Return what runs the allocated shapes by the former model, if they differ from its in the number of rows
        alone."""
        former, lowered = self._former, self._lowered
        if self._pieces is None and former is not None and lowered is not None:
            from tflgpu.frontend.lowered import has_same_rows

            before = former.lowered or self._compiler.lowered(former.options)
            if before is not None and has_same_rows(before.lowered, lowered.lowered):
                rows, seconds = former.model.inputs[0].shape[0], sum(former.model.seconds.values())
                self._pieces = RowPieces(former.model.run, rows, seconds)
            else:
                self._lowered = None  # not to be looked for again
        return self._pieces if self._pieces is not None and self._pieces.is_worthwhile else None

    def _model(self) -> CompiledModel:
        """Return the model for the shapes that were allocated, which the first result needs."""
        if self._compiled is None:
            self._compiled = self._compiler.compile(self._chosen)
        return self._compiled

    @contextmanager
    def _preparing(self, shapes: Mapping[str, Shape]) -> Iterator[None]:
        """Open what LiteRT raises RuntimeError for; too little memory is a DeviceError, which is one."""
        try:
            yield
        except ValueError as error:
            raise RuntimeError(f"the model cannot be prepared: {error}") from error
        except MemoryError as error:
            given = ", ".join(f"{name!r} {list(shape)}" for name, shape in shapes.items())
            raise DeviceError(f"there is not enough memory for inputs {given}: {error}") from error

    def invoke(self) -> None:
        """Run the subgraph. Raises RuntimeError before :meth:`allocate`, and if the run fails; DeviceError is one."""
        if not self._is_ready or self._allocated_shapes is None:
            raise RuntimeError("Invoke called on model that is not ready.")
        values = self._values
        runs: CompiledModel | RowPieces | None = self._compiled
        if runs is None:
            with self._preparing(self._allocated_shapes):
                runs = self._in_pieces() or self._model()
        given = [values[index] for index in self._input_indices]
        try:
            results = runs.run(given)
        except ValueError as error:
            raise RuntimeError(f"the model cannot run on these inputs: {error}") from error
        except MemoryError as error:
            raise DeviceError(f"there is not enough memory for the outputs: {error}") from error
        found = {index: results[name] for index, name in self._output_places}
        found.update(zip(self._input_indices, given, strict=True))
        self._values = found

    def set(self, number: int, value: ArrayLike) -> None:
        """Copy a value into a tensor; only in an input it lasts longer than the next run.

        Args:
            number: The tensor's index.
            value: An array of the tensor's shape and element type, in any byte order.

        Raises:
            ValueError: Shape or element type differ, nothing is allocated yet, or the tensor is a constant or a
                variable.
        """
        if self._is_ready and type(number) is int and number in self._settable and type(value) is np.ndarray:
            held = self._values[number]
            if value.dtype is held.dtype and value.shape == held.shape:  # as of most calls
                held[...] = value
                return
        tensor = self.tensor(number)
        if not self._is_ready:
            raise ValueError("Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first")
        if tensor.data is not None or tensor.is_variable:
            kind = "variable" if tensor.is_variable else "constant"
            raise ValueError(f"Cannot set tensor: {number}, name: {tensor.name}, is a {kind} of the model")
        array, target = np.asarray(value), self._values.get(tensor.index)
        if target is None:
            target = np.empty(tensor.shape, _dtype(tensor))
        _check_fits(array, target, tensor)
        if tensor.index in self._input_shapes:
            target[...] = array  # the same memory in every run, which the device may have pinned
        else:
            self._values[tensor.index] = array.astype(target.dtype)

    def value(self, number: int) -> Array:
        """Return the array of an input, an output, a constant or a preserved tensor, not a copy.

        A sparse constant is the array that the file stores, as in LiteRT; ``sparsity_parameters`` say where its
        elements are.

        Args:
            number: The tensor's index.

        Raises:
            ValueError: The tensor is none of these, or nothing is allocated yet.
        """
        if self._is_ready and type(number) is int and number in self._computed:  # as in most calls
            return self._values[number]
        tensor = self.tensor(number)
        if tensor.sparse is not None:
            return tensor.sparse.values
        if tensor.data is not None:
            return tensor.data
        is_stale = tensor.index in self._input_shapes and not self._is_ready
        if self._allocated_shapes is None or is_stale:
            raise ValueError("Tensor data is null. Run allocate_tensors() first")
        if tensor.index not in self._values:
            raise ValueError(
                f"Tensor data is null. {tensor.name!r} is neither input nor output; an Interpreter with "
                "experimental_preserve_all_tensors=True keeps what operators compute, and variables"
            )
        return self._values[tensor.index]

    def reset_variables(self) -> None:
        """Set the variables to their initial values."""
        if self._compiled is not None:
            self._compiled.reset_state()
        if self._allocated_shapes is not None:
            for number in self._values:
                if self._tensors[number].is_variable:
                    self._values[number] = _first_value(self._tensors[number], self._values[number].shape)


def check_strict(tensor: FileTensor, shape: Shape) -> None:
    """Accept a shape that differs from the file's only along axes that the file leaves open.

    Args:
        tensor: The tensor as the file declares it; its signature has -1 for open axes.
        shape: The new shape.

    Raises:
        RuntimeError: A fixed size or the number of axes differs.
    """
    if len(shape) != len(tensor.signature):
        raise RuntimeError(f"tensor {tensor.index} has {len(tensor.signature)} dimensions; {len(shape)} were given")
    for axis, (size, fixed) in enumerate(zip(shape, tensor.signature, strict=True)):
        if fixed not in (-1, size):
            raise RuntimeError(
                f"Attempting to resize dimension {axis} of tensor {tensor.index} with value {fixed} to {size}. "
                "ResizeInputTensorStrict only allows mutating unknown dimensions identified by -1."
            )


def _check_fits(array: Array, target: Array, tensor: FileTensor) -> None:
    """Raise ValueError for an array of another element type or shape than its target, the byte order aside."""
    if array.dtype.newbyteorder("=") != target.dtype:
        got, expected = (a.dtype.name.upper() for a in (array, target))
        raise ValueError(
            f"Cannot set tensor: Got value of type {got} but expected type {expected} for input {tensor.index}, "
            f"name: {tensor.name}"
        )
    if array.ndim != target.ndim:
        raise ValueError(
            f"Cannot set tensor: Dimension mismatch. Got {array.ndim} but expected {target.ndim} for input "
            f"{tensor.index}."
        )
    for axis, (size, wanted) in enumerate(zip(array.shape, target.shape, strict=True)):
        if size != wanted:
            raise ValueError(
                f"Cannot set tensor: Dimension mismatch. Got {size} but expected {wanted} for dimension {axis} of "
                f"input {tensor.index}."
            )


def _first_value(tensor: FileTensor, shape: Shape) -> Array:
    """Zeros; of a variable those that its integers stand for."""
    zero = tensor.quantization.zero_point[0] if tensor.is_variable and tensor.quantization else 0
    return np.full(shape, zero, _dtype(tensor)) if zero else np.zeros(shape, _dtype(tensor))


def _dtype(tensor: FileTensor) -> Any:
    return tensor_details(tensor)["dtype"]
