"""Some operators of a file as a model of their own, with all that they refer to and nothing else.

Every reference of the schema from one table to another by number is followed here: to operator codes (which stay),
tensors, buffers and subgraphs. What refers to the whole file, signatures and metadata, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tflgpu.artifact.artifact import Artifact, CpuPartition
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import TensorIndex

if TYPE_CHECKING:  # a warm start does without
    from tflgpu.frontend.partition import Partition

ABSENT = -1  # an optional tensor that is not given

# The fields that name subgraphs are those with this word in them, and one of a foreign call.
SUBGRAPH, COMPUTATIONS = "subgraph", "calledComputations"


@dataclass(frozen=True)
class Submodel:
    """Operators for LiteRT as a model of their own.

    model: its file. operators: index and code in the user's file of each operator of its main subgraph. is_open:
    whether only a run can tell the shape of an input.
    """

    model: bytes
    operators: tuple[tuple[int, str], ...]
    is_open: bool = False

    @classmethod
    def of(cls, partition: CpuPartition, artifact: Artifact) -> Submodel:
        """The operators of one of an artifact's partitions."""
        codes = {o.index: o.code for o in artifact.report.operators}
        return cls(partition.model, tuple((i, codes[i]) for i in partition.operators), partition.is_open)


def extract_submodel(data: bytes, subgraph: int, partition: Partition, shapes: Mapping[TensorIndex, Shape]) -> bytes:
    """The operators of a partition, and the subgraphs that these call, as a model file.

    Args:
        data: The whole model's file.
        subgraph: Number of the partition's subgraph in it.
        partition: The operators.
        shapes: Of the partition's inputs, where they are known; the file does not always have them.

    Returns:
        The file of the partition.
    """
    part = Extract(unpacked(data), subgraph, partition.operators, partition.inputs, partition.outputs)
    for index, shape in shapes.items():
        part.tensor(index).shape = list(shape)
    return packed(part.model)


class Extract:
    """A model of operators of one subgraph of ``file``, a ``ModelT`` that stays as it is.

    model: a ``ModelT``, whose main subgraph has the operators. Its tables may be changed, the arrays in its buffers may
    not.
    tensors: the numbers that the subgraph's tensors have in it.
    """

    def __init__(
        self, file: Any, subgraph: int, operators: Iterable[int], inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        """Extract operators with all that they refer to.

        Args:
            file: The whole model, a ``ModelT``.
            subgraph: Number of the operators' subgraph.
            operators: By their numbers in the subgraph.
            inputs: The tensors that the operators are given, by their numbers in the subgraph.
            outputs: The tensors that they give.
        """
        from ai_edge_litert import schema_py_generated as schema  # an extra of the package

        own = file.subgraphs[subgraph]
        calls = [own.operators[i] for i in operators]
        self.tensors = _numbers(own, calls, (*inputs, *outputs))
        called = list(_reached(file, calls))
        self._subgraphs = {number: 1 + place for place, number in enumerate(called)}
        self._file, self._new_buffer = file, schema.BufferT
        self._buffers = {0: 0}  # buffer 0 is empty by convention
        self.model = schema.ModelT()
        self.model.version, self.model.operatorCodes = file.version, file.operatorCodes
        self.model.buffers = [schema.BufferT()]
        main = schema.SubGraphT()
        main.name, main.tensors = own.name, [self._tensor(own.tensors[t], self.tensors) for t in self.tensors if t >= 0]
        main.operators = [self._operator(operator, self.tensors) for operator in calls]
        main.inputs, main.outputs = ([self.tensors[t] for t in side] for side in (inputs, outputs))
        self.model.subgraphs = [main, *(self._called(file.subgraphs[number]) for number in called)]

    def tensor(self, index: int) -> Any:
        """The ``TensorT`` of a tensor of the file's subgraph."""
        return self.model.subgraphs[0].tensors[self.tensors[index]]

    def has_data(self, tensor: Any) -> bool:
        """Whether one of the model's tensors is a constant."""
        data = self.model.buffers[tensor.buffer].data
        return data is not None and len(data) > 0

    def fill(self, tensor: Any, data: Any) -> None:
        """Make one of the model's tensors a constant. data: an array of bytes."""
        tensor.buffer = len(self.model.buffers)
        self.model.buffers.append(self._new_buffer(data=data))

    def _called(self, subgraph: Any) -> Any:
        """A subgraph that an operator calls: whole, so that its tensors keep their numbers."""
        subgraph, same = copy(subgraph), _Same()
        subgraph.tensors = [self._tensor(tensor, same) for tensor in subgraph.tensors or ()]
        subgraph.operators = [self._operator(operator, same) for operator in subgraph.operators or ()]
        subgraph.debugMetadataIndex = -1
        return subgraph

    def _tensor(self, tensor: Any, numbers: Mapping[int, int]) -> Any:
        tensor = copy(tensor)
        if tensor.buffer not in self._buffers:
            self._buffers[tensor.buffer] = len(self.model.buffers)
            self.model.buffers.append(self._file.buffers[tensor.buffer])
        tensor.buffer = self._buffers[tensor.buffer]
        if fields := _named_by_quantization(tensor):
            tensor.quantization = copy(tensor.quantization)
            tensor.quantization.details = copy(tensor.quantization.details)
            for field, index in fields.items():
                setattr(tensor.quantization.details, field, numbers[index])
        return tensor

    def _operator(self, operator: Any, numbers: Mapping[int, int]) -> Any:
        operator = copy(operator)
        for side in ("inputs", "outputs", "intermediates"):
            indices = getattr(operator, side)
            setattr(operator, side, None if indices is None else [numbers[int(t)] for t in indices])
        for union in ("builtinOptions", "builtinOptions2"):
            options = copy(getattr(operator, union))
            for field, value in _subgraph_fields(options).items():
                many = not isinstance(value, int)
                renumbered = [self._subgraphs[int(n)] for n in value] if many else self._subgraphs[value]
                setattr(options, field, renumbered)
            setattr(operator, union, options)
        operator.debugMetadataIndex = -1
        return operator


class _Same(dict[int, int]):
    """Every number stays what it is."""

    def __missing__(self, number: int) -> int:
        return number


def _numbers(subgraph: Any, operators: Iterable[Any], others: Iterable[int]) -> dict[int, int]:
    """New numbers of all tensors that operators refer to, and of ``others``, in the order of the file.

    So tensor 0 stays tensor 0, if it is among them: quantization parameters without zero points name it.
    """
    found = {*others, *(t for o in operators for t in tensors_of(o))}
    found |= {t for index in found if index >= 0 for t in _named_by_quantization(subgraph.tensors[index]).values()}
    indices = sorted(found - {ABSENT})
    return {ABSENT: ABSENT} | {index: place for place, index in enumerate(indices)}


def tensors_of(operator: Any) -> Iterator[int]:
    """The tensors of its own subgraph that an ``OperatorT`` names, ABSENT among them."""
    for indices in (operator.inputs, operator.outputs, operator.intermediates):
        yield from map(int, () if indices is None else indices)


def _named_by_quantization(tensor: Any) -> dict[str, int]:
    """The tensors that hold scales and zero points of another one, by field of its quantization's details."""
    details = getattr(tensor.quantization, "details", None)
    return {field: int(index) for field, index in _fields(details).items() if field in ("scales", "zeroPoints")}


def _reached(file: Any, operators: Iterable[Any]) -> dict[int, None]:
    """The subgraphs that operators call, and those that these call."""
    found: dict[int, None] = {}
    pending = list(operators)
    while pending:
        operator = pending.pop(0)
        for number in _calls(operator):
            if number not in found:
                found[number] = None
                pending += file.subgraphs[number].operators or ()
    return found


def _calls(operator: Any) -> Iterator[int]:
    for options in (operator.builtinOptions, operator.builtinOptions2):
        for value in _subgraph_fields(options).values():
            yield from [value] if isinstance(value, int) else map(int, value)


def _subgraph_fields(options: Any) -> dict[str, Any]:
    """The fields of an operator's options that name a subgraph, or several."""
    named = _fields(options).items()
    return {n: value for n, value in named if value is not None and (SUBGRAPH in n.lower() or n == COMPUTATIONS)}


def _fields(table: Any) -> dict[str, Any]:
    return {} if table is None else vars(table)
