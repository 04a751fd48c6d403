"""A compiled model as plain data: all that a device needs to run it, and all that callers may ask about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.graph.layout import Shape
from tflgpu.model.run_time_numbers import Bound, Trim
from tflgpu.model.tensor_info import (
    InitialValues,
    Interface,
    PassedVariable,
    SignatureInfo,
    TensorIndex,
    TensorInfo,
)
from tflgpu.report.report import Report


@dataclass(frozen=True)
class DevicePartition:
    """Operators that run on the device: OpenCL C, and how it is launched.

    inputs, outputs: tensors of the file; a loop's own boolean is none. checks: after the outputs the executable
    has a boolean for each of these faults, true if the run found it. trims: what a run cuts off of the outputs; the
    sizes that say how much are the executable's last outputs. binaries: compiled programs of the source, the
    best first; empty until the device's compiler has run.
    """

    inputs: tuple[TensorIndex, ...]
    outputs: tuple[TensorIndex, ...]
    source: str = field(repr=False)
    executable: Executable = field(repr=False)
    checks: tuple[str, ...] = ()
    trims: tuple[Trim, ...] = ()
    binaries: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class FileEntry:
    """A signature that LiteRT runs in an interpreter of the user's file, which all signatures of the file share.

    signature: its key; None for the main subgraph of a file without signatures. subgraph: its number. names: of its
    inputs.
    """

    signature: str | None
    subgraph: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class CpuPartition:
    """Operators that LiteRT's interpreter runs on the CPU.

    operators: their indices in the file. model: a .tflite file of their own. is_open: whether only a run can tell the
    shape of one of the inputs. entry: what they are, if ``model`` is the user's file.
    """

    inputs: tuple[TensorIndex, ...]
    outputs: tuple[TensorIndex, ...]
    operators: tuple[int, ...]
    model: bytes = field(repr=False)
    is_open: bool = False
    entry: FileEntry | None = None


@dataclass(frozen=True)
class LoopState:
    """A value that an iteration hands on to the next one, in a buffer of the body that is a state.

    binding: where it lies, in PHWC4. start: the tensor of the file with its first value; None if the body's executable
    has that. result: the tensor of the file that gets its last value.
    """

    binding: Binding
    start: TensorIndex | None
    result: TensorIndex


@dataclass(frozen=True)
class LoopPartition:
    """A WHILE that runs on the device, its state in device memory.

    body: one iteration. Its output, if it has one, says whether another iteration follows.
    condition: whether the first iteration follows; None if ``bounds`` tell the number of iterations.
    passed: outputs that no iteration changes, each after the tensor whose value it has. known: such outputs with values
    that are known before a run.
    """

    inputs: tuple[TensorIndex, ...]
    outputs: tuple[TensorIndex, ...]
    body: DevicePartition
    condition: DevicePartition | None
    bounds: tuple[Bound, ...]
    states: tuple[LoopState, ...]
    passed: tuple[tuple[TensorIndex, TensorIndex], ...]
    known: tuple[tuple[TensorIndex, Array], ...] = field(compare=False)


@dataclass(frozen=True)
class BranchPartition:
    """An IF that runs on the device: one of two pieces. decision: the tensor of the file that chooses."""

    inputs: tuple[TensorIndex, ...]
    outputs: tuple[TensorIndex, ...]
    decision: TensorIndex
    then: DevicePartition
    otherwise: DevicePartition


@dataclass(frozen=True)
class PartedLoopPartition:
    """A WHILE whose body is several partitions, all on the device, and whose state lies on the host.

    condition: whether an iteration follows. body: what an iteration runs. state, following: tensors of the body's
    subgraph, before and after an iteration; the condition and the body's partitions name these, too. starts: the tensor
    of the file with the first value of each; None for one that is ``known``.
    """

    inputs: tuple[TensorIndex, ...]
    outputs: tuple[TensorIndex, ...]
    condition: DevicePartition
    body: tuple[CompiledPartition, ...]
    state: tuple[TensorIndex, ...]
    following: tuple[TensorIndex, ...]
    starts: tuple[TensorIndex | None, ...]
    results: tuple[TensorIndex, ...]
    known: tuple[tuple[TensorIndex, Array], ...] = field(compare=False)


CompiledPartition = DevicePartition | CpuPartition | LoopPartition | BranchPartition | PartedLoopPartition


def pieces_of(partition: CompiledPartition) -> tuple[DevicePartition, ...]:
    """Return what a partition runs on the device.

    Args:
        partition: A loop has its body and perhaps its condition, an IF its branches.
    """
    match partition:
        case DevicePartition():
            return (partition,)
        case LoopPartition(body=body, condition=condition):
            return (body,) if condition is None else (body, condition)
        case BranchPartition(then=then, otherwise=otherwise):
            return (then, otherwise)
        case PartedLoopPartition(condition=condition, body=parts):
            return (condition, *(piece for part in parts for piece in pieces_of(part)))
    return ()


def with_pieces(partition: CompiledPartition, pieces: Sequence[DevicePartition]) -> CompiledPartition:
    """Return the partition with other pieces.

    Args:
        partition: A partition on the device.
        pieces: In place of its :func:`pieces_of`, in the same order.
    """
    match partition:
        case DevicePartition():
            return pieces[0]
        case LoopPartition():
            return replace(partition, body=pieces[0], condition=pieces[1] if len(pieces) > 1 else None)
        case BranchPartition():
            return replace(partition, then=pieces[0], otherwise=pieces[1])
        case PartedLoopPartition():
            left, body = list(pieces[1:]), list[CompiledPartition]()
            for part in partition.body:
                count = len(pieces_of(part))
                body.append(with_pieces(part, left[:count]))
                del left[:count]
            return replace(partition, condition=pieces[0], body=tuple(body))
    return partition


def planned_shapes(partition: CompiledPartition) -> dict[TensorIndex, Shape]:
    """Return the shapes that the device's part of a partition takes, by tensor of the file.

    Args:
        partition: A partition on the device.
    """
    if isinstance(partition, PartedLoopPartition):
        return {}  # what is before it on the device has the shapes that were planned
    pieces = pieces_of(partition)
    shapes = {t: b.shape for p in pieces for t, b in zip(p.inputs, p.executable.inputs, strict=True)}
    if isinstance(partition, LoopPartition):
        shapes |= {s.start: s.binding.shape for s in partition.states if s.start is not None}
    return shapes


@dataclass(frozen=True)
class BoundState:
    """An input that has the value of an output in the next run, or a variable, in memory that outlives the run.

    output: its name. binding: how the value lies in memory, in PHWC4. bytes: of the memory. variable: the key of a
    resource variable; empty for an input. partition: the number of the one that reads and writes it.
    """

    output: str
    input: TensorInfo
    binding: Binding
    bytes: int
    variable: str = ""
    partition: int = 0


@dataclass(frozen=True)
class Artifact:
    """The partitions in the order in which they run; tensors between them are named by the file's indices.

    signature: key of the one that it is, if it is one. signatures: all of the file. bound: what is no input or output
    because it is a state, and the variables that are on the device, in the order of the executables' states.
    passed: the other variables. first: what CALL_ONCEs give variables, those of other signatures included.
    """

    inputs: Interface
    outputs: Interface
    partitions: tuple[CompiledPartition, ...]
    report: Report
    signature: str | None = None
    signatures: tuple[SignatureInfo, ...] = ()
    bound: tuple[BoundState, ...] = ()
    passed: tuple[PassedVariable, ...] = ()
    first: tuple[InitialValues, ...] = ()

    @property
    def has_variables(self) -> bool:
        """Whether a run uses what the opened model keeps for all of its signatures."""
        in_litert = any(isinstance(partition, CpuPartition) and partition.entry for partition in self.partitions)
        return bool(self.passed or self.first or in_litert or any(state.variable for state in self.bound))

    @property
    def pieces(self) -> tuple[DevicePartition, ...]:
        """All that runs on the device."""
        return tuple(piece for partition in self.partitions for piece in pieces_of(partition))

    @property
    def executor(self) -> Literal["launch", "persistent", "claiming"]:
        """The executor of the partitions on the device; of those that cannot be claimed it is ``"launch"``."""
        if any(piece.executable.claiming for piece in self.pieces):
            return "claiming"
        return "persistent" if any(piece.executable.persistent for piece in self.pieces) else "launch"

    @property
    def has_free_axes(self) -> bool:
        """Whether the file leaves sizes of the inputs open: then a run may need the model for other ones."""
        return any(info.free_axes for _, info in self.inputs)


def check_artifact(artifact: Artifact) -> None:
    """Raise ValueError, or TypeError, for an artifact that cannot run: a file of the cache may say anything."""
    for side in (artifact.inputs, artifact.outputs):
        if len({info.name for _, info in side}) < len(side):
            raise ValueError("two inputs, or two outputs, have the same name")
    known = {tensor for tensor, _ in artifact.inputs}
    for partition in artifact.partitions:
        for piece in pieces_of(partition):
            given, wanted = len(piece.inputs), len(piece.executable.inputs)
            if given != wanted:
                raise ValueError(f"{given} tensors are inputs of an executable that has {wanted}")
        if isinstance(partition, DevicePartition):
            results = len(partition.outputs) + len(partition.checks) + len({trim.size for trim in partition.trims})
            if results != len(partition.executable.outputs):
                raise ValueError(f"an executable has {len(partition.executable.outputs)} outputs, and not {results}")
        _check_known(partition.inputs, known)
        known.update(partition.outputs)
    _check_known([tensor for tensor, _ in artifact.outputs], known)
    planned = [planned_shapes(partition) for partition in artifact.partitions]
    for tensor, info in artifact.inputs:
        np.dtype(info.dtype)
        for shapes in planned:
            if shapes.get(tensor, info.shape) != info.shape:
                raise ValueError(f"input {info.name!r} has two shapes, {list(shapes[tensor])} and {list(info.shape)}")


def _check_known(tensors: Iterable[TensorIndex], known: Collection[TensorIndex]) -> None:
    for tensor in tensors:
        if tensor not in known:
            raise ValueError(f"nothing computes tensor {tensor}")


def without_constants(artifact: Artifact) -> Artifact:
    """Return the artifact without weights, binaries and CPU models: the host no longer needs them once they are
    loaded."""
    return replace(artifact, partitions=tuple(map(_without_constants, artifact.partitions)))


def _without_constants(partition: CompiledPartition) -> CompiledPartition:
    if isinstance(partition, CpuPartition):
        return replace(partition, model=b"")
    return with_pieces(partition, [_without_weights(piece) for piece in pieces_of(partition)])


def _without_weights(piece: DevicePartition) -> DevicePartition:
    return replace(piece, executable=piece.executable.without_constants(), binaries=())
