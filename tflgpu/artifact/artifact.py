"""A compiled model as plain data: all that a device needs to run it, and all that callers may ask about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from tflgpu.artifact.executable import Executable
from tflgpu.model.tensor_info import Interface, TensorIndex
from tflgpu.report.report import Report


@dataclass(frozen=True)
class DevicePartition:
    """Operators that run on the device: OpenCL C, and how it is launched.

    inputs, outputs: tensors of the file. checks: behind the outputs the executable has a truth value for each of these
    faults, true if the run found it. binaries: compiled programs of the source, the best first; empty until the
    device's compiler has run.
    """

    inputs: tuple[TensorIndex, ...]
    outputs: tuple[TensorIndex, ...]
    source: str = field(repr=False)
    executable: Executable = field(repr=False)
    checks: tuple[str, ...] = ()
    binaries: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class CpuPartition:
    """Operators that LiteRT's interpreter runs on the CPU.

    operators: their indices in the file. model: a .tflite file of their own. is_open: whether only a run can tell the
    shape of one of the inputs.
    """

    inputs: tuple[TensorIndex, ...]
    outputs: tuple[TensorIndex, ...]
    operators: tuple[int, ...]
    model: bytes = field(repr=False)
    is_open: bool = False


CompiledPartition = DevicePartition | CpuPartition


@dataclass(frozen=True)
class Artifact:
    """The partitions in the order in which they run; tensors between them are named by the file's indices."""

    inputs: Interface
    outputs: Interface
    partitions: tuple[CompiledPartition, ...]
    report: Report

    @property
    def executor(self) -> Literal["launch", "persistent"]:
        """The executor of the partitions on the device."""
        persistent = any(isinstance(p, DevicePartition) and p.executable.persistent for p in self.partitions)
        return "persistent" if persistent else "launch"

    @property
    def has_free_axes(self) -> bool:
        """Whether the file leaves sizes of the inputs open: then a run may need the model for other ones."""
        return any(info.free_axes for _, info in self.inputs)

    def codes(self, partition: CpuPartition) -> tuple[tuple[int, str], ...]:
        """Index and code of each operator of one of the partitions."""
        codes = {o.index: o.code for o in self.report.operators}
        return tuple((index, codes[index]) for index in partition.operators)


def without_constants(artifact: Artifact) -> Artifact:
    """The artifact without weights, binaries and CPU models: the host no longer needs them once they are loaded."""
    return replace(artifact, partitions=tuple(map(_without_constants, artifact.partitions)))


def _without_constants(partition: CompiledPartition) -> CompiledPartition:
    if isinstance(partition, CpuPartition):
        return replace(partition, model=b"")
    buffers = tuple(replace(b, data=None) for b in partition.executable.buffers)
    return replace(partition, executable=replace(partition.executable, buffers=buffers), binaries=())
