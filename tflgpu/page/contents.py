"""Contents of the page, as plain data: no drawing, no HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tflgpu.report.profile import Rates
from tflgpu.report.report import OperatorReport, Report


@dataclass(frozen=True)
class Operand:
    """An argument of a kernel.

    name: in the kernel. tensor: its name in the file, ``""`` for a constant or a result within an operator.
    place: ``arena``, ``constant``, ``input``, ``output`` or ``state``. offset: in the arena, in bytes.
    """

    name: str
    tensor: str
    shape: tuple[int, ...]
    type: str
    bytes: int
    place: str
    offset: int | None
    written: bool


@dataclass(frozen=True)
class KernelFacts(Rates):
    """One launch.

    number: as ``OperatorReport.kernel`` counts them. group: the operator type that its time counts for.
    seconds: None for a kernel of a branch that the run did not take.
    sources: numbers of the kernels whose results it reads; from_outside: whether it reads an input or a state too.
    template: what it was made of. function: its name in the source, which equal kernels share; ``""`` if it was not
    measured. groups, local_size: its work-groups, and the
    work-items of each. shape: of its result. steps: what its epilogue computes, in order.
    """

    number: int
    operators: tuple[OperatorReport, ...]
    group: str
    seconds: float | None
    macs: int
    bytes: int
    level: int
    template: str
    function: str
    groups: int
    local_size: int
    shape: tuple[int, ...]
    steps: tuple[str, ...]
    operands: tuple[Operand, ...]
    sources: tuple[int, ...]
    from_outside: bool
    is_output: bool

    @property
    def title(self) -> str:
        """The operators that it computes."""
        return " + ".join(o.code for o in self.operators) or "layout conversion"

    @property
    def intensity(self) -> float | None:
        """Multiplications and additions for each byte; None without such."""
        return 2 * self.macs / self.bytes if self.macs and self.bytes else None


@dataclass(frozen=True)
class ArenaTensor:
    """A tensor in the arena. first, last: numbers of the kernels that write it first and use it last."""

    name: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Piece:
    """Kernels that run in a row, with an arena of their own.

    title: what of a loop or branch it is, else ``""``. taken: whether the run needed it.
    """

    title: str
    taken: bool
    kernels: tuple[KernelFacts, ...]
    arena_bytes: int
    tensors: tuple[ArenaTensor, ...]

    @property
    def seconds(self) -> float:
        """Time of its kernels."""
        return sum(k.seconds or 0.0 for k in self.kernels)


@dataclass(frozen=True)
class Section:
    """A partition of the model.

    call: code of the loop or branch that it is, else ``""``. crossing: names of the tensors that it takes from the
    other side, and crossing_bytes their size. seconds: of its kernels, or the CPU's wall time.
    """

    on_device: bool
    call: str
    operators: tuple[OperatorReport, ...]
    pieces: tuple[Piece, ...]
    crossing: tuple[str, ...]
    crossing_bytes: int
    seconds: float


@dataclass(frozen=True)
class Setting:
    """Where and how it was measured. moment: ISO 8601. runs: each time is their median."""

    model: str
    model_bytes: int
    device: str
    platform: str
    driver: str
    precision: str
    executor: str
    version: str
    runs: int
    moment: str


@dataclass(frozen=True)
class Ceiling:
    """A line of the roofline: a rate in billions a second, and what reached it."""

    name: Literal["copy", "multiply-add", "tensor cores", "best kernel"]
    rate: float


@dataclass(frozen=True)
class Contents:
    """All of it. host_seconds: median of one run, host array to host array."""

    setting: Setting
    report: Report
    sections: tuple[Section, ...]
    host_seconds: float
    bandwidth: Ceiling
    arithmetic: Ceiling

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of all sections."""
        return tuple(piece for section in self.sections for piece in section.pieces)

    @property
    def kernels(self) -> tuple[KernelFacts, ...]:
        """All of them, by number."""
        return tuple(kernel for piece in self.pieces for kernel in piece.kernels)

    @property
    def device_seconds(self) -> float:
        """Time of the sections on the device."""
        return sum(section.seconds for section in self.sections if section.on_device)

    @property
    def cpu_seconds(self) -> float:
        """Time of the sections that LiteRT runs."""
        return sum(section.seconds for section in self.sections if not section.on_device)

    @property
    def seconds(self) -> float:
        """Seconds of device and CPU, of which shares are parts."""
        return self.device_seconds + self.cpu_seconds
