"""Some operators of a file as a model of their own, with all that they refer to and nothing else.

Every reference of the schema from one table to another by number is followed here: to operator codes (which stay),
tensors, buffers and subgraphs. What refers to the whole file, signatures and metadata, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tflgpu.artifact.artifact import Artifact, CpuPartition, FileEntry
from tflgpu.fallback.litert_interpreter import Place
from tflgpu.fallback.schema_objects import VariableOperators, packed, unpacked, with_zeros

if TYPE_CHECKING:  # a warm start does without
    from tflgpu.frontend.frontend import Frontend
    from tflgpu.frontend.partition import Partition
    from tflgpu.model.model import Subgraph

ABSENT = -1  # an optional tensor that is not given

# The fields that name subgraphs are those with this word in them, and one of a foreign call.
SUBGRAPH, COMPUTATIONS = "subgraph", "calledComputations"


@dataclass(frozen=True)
class Submodel:
    """Operators for LiteRT as a model of their own.

    model: its file. operators: index and code in the user's file of each operator of its main subgraph. is_open:
    whether only a run can tell the shape of an input. entry: which signature it is, if ``model`` is the user's file.
    outputs: its tensors to return then.
    """

    model: bytes
    operators: tuple[tuple[int, str], ...]
    is_open: bool = False
    entry: FileEntry | None = None
    outputs: tuple[int, ...] = ()

    @property
    def place(self) -> Place | None:
        """Signature of the user's file that it is, if it is one."""
        entry = self.entry
        return None if entry is None else (entry.signature, entry.subgraph, entry.names, self.outputs)

    @classmethod
    def of(cls, partition: CpuPartition, artifact: Artifact) -> Submodel:
        """Return the operators of one of an artifact's partitions.

        Args:
            partition: A partition for the CPU.
            artifact: The model that it is of.
        """
        codes = {o.index: o.code for o in artifact.report.operators}
        operators = tuple((i, codes[i]) for i in partition.operators)
        return cls(partition.model, operators, partition.is_open, partition.entry, partition.outputs)


def extract_submodel(data: bytes, frontend: Frontend, partition: Partition) -> Submodel:
    """Return the operators of a partition, and the subgraphs that these call, as a model.

    Args:
        data: The whole model's file.
        frontend: The same, lowered.
        partition: The operators.
    """
    codes, entry = {o.index: o.code for o in frontend.lowered.entries}, frontend.entry
    operators = tuple((i, codes[i]) for i in partition.operators)
    if frontend.subgraph.is_left_to_litert:
        names = tuple(name for name, _ in entry.inputs)
        whole = FileEntry(entry.signature, entry.subgraph, names)
        return Submodel(with_zeros(data, frontend.model.kept_in_litert), operators, True, whole, partition.outputs)
    is_open = not frontend.lowered.open.isdisjoint(partition.inputs)
    if _is_whole(frontend, partition):
        return Submodel(data, operators, is_open)
    return Submodel(_extracted(data, frontend, partition), operators, is_open)


def _is_whole(frontend: Frontend, partition: Partition) -> bool:
    """Tell whether a partition is the main subgraph as the file has it, so that the file need not be taken apart."""
    main, first = frontend.subgraph, frontend.model.subgraphs[0]
    sides = (partition.inputs, partition.outputs) == (main.inputs, main.outputs)
    is_plain = not main.variables and not main.first_values and not any(o.variables for o in main.operators)
    sizes = all(main.tensors[t].shape == shape for t, shape in frontend.sizes(partition).items())
    return main is first and sides and is_plain and sizes and len(partition.operators) == len(main.operators)


def cpu_partition(data: bytes, frontend: Frontend, partition: Partition) -> CpuPartition:
    """Return a partition that LiteRT runs.

    Args:
        data: The whole model's file.
        frontend: The same, lowered.
        partition: The operators.
    """
    sub = extract_submodel(data, frontend, partition)
    return CpuPartition(partition.inputs, partition.outputs, partition.operators, sub.model, sub.is_open, sub.entry)


def _extracted(data: bytes, frontend: Frontend, partition: Partition) -> bytes:
    """Return the file of a partition."""
    where, sides = (frontend.entry.subgraph, frontend.subgraph), (partition.inputs, partition.outputs)
    part = Extract(unpacked(data), *where, partition.operators, *sides)
    for index, shape in frontend.sizes(partition).items():  # the file does not always have them
        part.tensor(index).shape = list(shape)
    return packed(part.model)


class Extract:
    """A model of operators of one subgraph of ``file``, a ``ModelT`` that stays as it is.

    model: a ``ModelT``, whose main subgraph has the operators. Its tables may be changed, the arrays in its buffers may
    not.
    tensors: the numbers that the subgraph's tensors have in it. writer: of more tensors, and of operators on variables.

    Subgraphs that operators call may use variables, whose values are inputs and outputs of these operators here: the
    model assigns them before the operator, and reads them after it.
    """

    def __init__(
        self,
        file: Any,
        number: int,
        subgraph: Subgraph,
        operators: Iterable[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        """Extract operators with all that they refer to.

        Args:
            file: The whole model, a ``ModelT``.
            number: Of the operators' subgraph.
            subgraph: The operators' subgraph, with values in place of variables.
            operators: By their numbers in the subgraph.
            inputs: The tensors that the operators are given, by their numbers in the subgraph.
            outputs: The tensors that they give.
        """
        from ai_edge_litert import schema_py_generated as schema  # an extra of the package

        own, operators = file.subgraphs[number], tuple(operators)
        calls = [_renamed(own.operators[i], subgraph.aliases) for i in operators]
        uses = [use for i in operators for use in subgraph.operators[i].variables]
        values = (t for use in uses for t in (use.before, use.after) if t is not None)
        self.tensors = _numbers(own, calls, (*inputs, *outputs, *values))
        called = list(_reached(file, calls))
        self._subgraphs = {number: 1 + place for place, number in enumerate(called)}
        self._file = file
        self._buffers = {0: 0}  # buffer 0 is empty by convention
        self.model = schema.ModelT()
        self.model.version, self.model.operatorCodes = file.version, list(file.operatorCodes)
        self.model.buffers = [schema.BufferT()]
        main = schema.SubGraphT()
        main.name, main.operators = own.name, []
        self.writer = VariableOperators(self.model, main)
        value = self.writer.value
        main.tensors = [
            self._tensor(own.tensors[t], self.tensors) if t < len(own.tensors) else value(subgraph.tensors[t])
            for t in self.tensors
            if t >= 0
        ]
        for place, call in zip(operators, calls, strict=True):
            operator = subgraph.operators[place]
            main.operators += [self.writer.handle(key, self.tensors[t]) for t, key in operator.handles]
            for use in operator.variables:
                if use.before is not None:
                    main.operators += self.writer.assignment(use.key, self.tensors[use.before])
            main.operators.append(self._operator(call, self.tensors))
            for use in operator.variables:
                if use.after is not None:
                    main.operators += self.writer.reading(use.key, self.tensors[use.after])
        main.inputs, main.outputs = ([self.tensors[t] for t in side] for side in (inputs, outputs))
        self.model.subgraphs = [main, *(self._called(file.subgraphs[number]) for number in called)]

    def tensor(self, index: int) -> Any:
        """Return the ``TensorT`` of a tensor of the file's subgraph.

        Args:
            index: The tensor's in the file.
        """
        return self.model.subgraphs[0].tensors[self.tensors[index]]

    def has_data(self, tensor: Any) -> bool:
        """Tell whether one of the model's tensors is a constant.

        Args:
            tensor: A ``TensorT`` of the model.
        """
        data = self.model.buffers[tensor.buffer].data
        return data is not None and len(data) > 0

    def _called(self, subgraph: Any) -> Any:
        """Return a subgraph that an operator calls: whole, so that its tensors keep their numbers."""
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


def _renamed(operator: Any, aliases: Mapping[int, int]) -> Any:
    """Return an operator that reads the values of variables where READ_VARIABLE gave them."""
    operator = copy(operator)
    operator.inputs = [aliases.get(int(t), int(t)) for t in (() if operator.inputs is None else operator.inputs)]
    return operator


class _Same(dict[int, int]):
    """Every number stays what it is."""

    def __missing__(self, number: int) -> int:
        return number


def _numbers(subgraph: Any, operators: Iterable[Any], others: Iterable[int]) -> dict[int, int]:
    """Return new numbers of all tensors that operators refer to, and of ``others``, in the order of the file.

    So tensor 0 stays tensor 0, if it is among them: quantization parameters without zero points name it.
    """
    found = {*others, *(t for o in operators for t in tensors_of(o))}
    own = [subgraph.tensors[index] for index in found if 0 <= index < len(subgraph.tensors)]
    found |= {t for tensor in own for t in _named_by_quantization(tensor).values()}
    indices = sorted(found - {ABSENT})
    return {ABSENT: ABSENT} | {index: place for place, index in enumerate(indices)}


def tensors_of(operator: Any) -> Iterator[int]:
    """Yield the tensors of its own subgraph that an operator names, ABSENT among them.

    Args:
        operator: An ``OperatorT``.
    """
    for indices in (operator.inputs, operator.outputs, operator.intermediates):
        yield from map(int, () if indices is None else indices)


def _named_by_quantization(tensor: Any) -> dict[str, int]:
    """Return the tensors that hold scales and zero points of another one, by field of its quantization's details."""
    details = getattr(tensor.quantization, "details", None)
    return {field: int(index) for field, index in _fields(details).items() if field in ("scales", "zeroPoints")}


def _reached(file: Any, operators: Iterable[Any]) -> dict[int, None]:
    """Return the subgraphs that operators call, and those that these call."""
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
    """Return the fields of an operator's options that name a subgraph, or several."""
    named = _fields(options).items()
    return {n: value for n, value in named if value is not None and (SUBGRAPH in n.lower() or n == COMPUTATIONS)}


def _fields(table: Any) -> dict[str, Any]:
    return {} if table is None else vars(table)
