"""The plan of a compiled model, and a profile of it -> what the page tells, as plain data: no drawing, no HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from tflgpu.compiler import lower_file
from tflgpu.frontend.control_flow.pieces import Branch, Call, Loop, PartedLoop
from tflgpu.frontend.frontend import Frontend
from tflgpu.frontend.partition import Partition
from tflgpu.graph.ir import TensorId
from tflgpu.kernels.kernel import Argument
from tflgpu.options import Options
from tflgpu.passes import optimize
from tflgpu.plan import Plan, PlannedKernel, make_plan
from tflgpu.plan.plan import traffic
from tflgpu.report.profile import KernelTime, Profile, Rates
from tflgpu.report.report import OperatorReport, Report
from tflgpu.target import Target


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


# If a kernel computes several operators, its time counts for the first of them that multiplies matrices.
MULTIPLIES = re.compile("CONV|Conv|CONNECTED|MATMUL|LSTM|RNN|EINSUM")

CONVERSION = "layout conversion"


def gather_sections(
    data: bytes, options: Options, target: Target, report: Report, profile: Profile
) -> tuple[Section, ...]:
    """Return the sections of a page. The model is planned again: an artifact has no names and no shapes.

    How kernels were tuned is the profile's word.

    Args:
        data: The bytes of the file.
        options: By which the model was compiled.
        target: With the executor that the model was compiled for, so that the plan is the one that was profiled.
        report: The compiled model's.
        profile: The times of its kernels.
    """
    return _Gathering(lower_file(data, options, target.missing_types), target, report, profile).sections()


class _Gathering:
    def __init__(self, frontend: Frontend, target: Target, report: Report, profile: Profile) -> None:
        self._frontend, self._target = frontend, target
        self._operators = {o.index: o for o in report.operators}
        self._times: dict[int, list[KernelTime]] = {}
        for time in profile.kernels:
            self._times.setdefault(time.piece, []).append(time)
        self._cpu_seconds = iter(profile.cpu_seconds)
        self._piece_numbers, self._kernel_numbers = count(), count()

    def sections(self) -> tuple[Section, ...]:
        partitions = self._frontend.partitions()
        return tuple(self._section(partition, partitions) for partition in partitions)

    def _section(self, partition: Partition, partitions: Sequence[Partition]) -> Section:
        tensors = self._frontend.subgraph.tensors
        others = {t for p in partitions if p.on_device != partition.on_device for t in p.outputs}
        crossing = [tensors[t] for t in partition.inputs if t in others]
        call = self._frontend.call(partition)
        pieces = self._pieces(partition, call) if partition.on_device else ()
        return Section(
            partition.on_device,
            self._operators[partition.operators[0]].code if call else "",
            tuple(self._operators[i] for i in partition.operators),
            pieces,
            tuple(t.name for t in crossing),
            sum(t.bytes for t in crossing),
            sum(p.seconds for p in pieces) if partition.on_device else next(self._cpu_seconds),
        )

    def _pieces(self, partition: Partition, call: Call | None) -> tuple[Piece, ...]:
        lowered = self._frontend.pieces(partition)
        plans = [make_plan(optimize(piece.graph), self._target) for piece in lowered]
        return tuple(map(self._piece, _titles(call, len(plans)), plans))

    def _piece(self, title: str, plan: Plan) -> Piece:
        times = self._times.get(next(self._piece_numbers), [])
        numbers = {k.node.output: number for k, number in zip(plan.kernels, self._kernel_numbers, strict=False)}
        first = min(numbers.values(), default=0)
        taken = bool(times) or not plan.kernels
        measured: Sequence[KernelTime | None] = times or [None] * len(plan.kernels)
        kernels = tuple(
            self._kernel(plan, planned, time, numbers) for planned, time in zip(plan.kernels, measured, strict=True)
        )
        return Piece(title, taken, kernels, plan.arena_bytes, tuple(_arena_tensors(plan, first)))

    def _kernel(
        self, plan: Plan, planned: PlannedKernel, time: KernelTime | None, numbers: Mapping[TensorId, int]
    ) -> KernelFacts:
        kernel, node, graph = planned.kernel, planned.node, plan.graph
        computed = [t for tensor in node.inputs if not graph[tensor].is_constant for t in _computed(plan, tensor)]
        operators = tuple(self._operators[i] for i in node.sources if i in self._operators)
        return KernelFacts(
            number=numbers[node.output],
            operators=operators,
            group=_group([o.code for o in operators], kernel.macs > 0),
            seconds=time.seconds if time else None,
            macs=kernel.macs,
            bytes=traffic(plan, planned),
            level=time.level if time else 0,
            template=time.kernel.rpartition("_")[0] if time else kernel.template.replace("/", "_"),
            function=time.kernel if time else "",
            groups=time.groups if time else kernel.tiles,
            local_size=time.local_size if time else kernel.local_size,
            shape=graph[node.output].shape,
            steps=tuple(op.function for op in node.epilogue),
            operands=tuple(_operand(a, plan) for a in planned.arguments),
            sources=tuple(sorted({numbers[t] for t in computed if t in numbers})),
            from_outside=any(t in graph.given for t in computed),
            is_output=any(node.output in _computed(plan, t) for t in graph.wanted),
        )


def _titles(call: Call | None, pieces: int) -> Sequence[str]:
    match call:
        case Loop():
            return ("one iteration", "condition")[:pieces]
        case Branch():
            return ("then", "otherwise")
        case PartedLoop():
            return ("condition", *(f"part {number} of an iteration" for number in range(1, pieces)))
    return ("",) * pieces


def _group(codes: Sequence[str], multiplies: bool) -> str:
    """Return the operator type for which a kernel's time counts."""
    if multiplies and (found := next(filter(MULTIPLIES.search, codes), None)):
        return found
    return codes[0] if codes else CONVERSION


def _computed(plan: Plan, tensor: TensorId) -> Iterator[TensorId]:
    """Yield the tensors that a kernel computes, or that are given, of which one without a kernel is made."""
    node = plan.graph.producer.get(tensor)
    if node is not None and node.in_place:
        for source in node.inputs:
            yield from _computed(plan, source)
    else:
        yield tensor if node is None else node.output


def _operand(argument: Argument, plan: Plan) -> Operand:
    if argument.tensor is None:
        shape = () if argument.data is None else argument.data.shape
        return Operand(argument.name, "", shape, argument.type, argument.bytes, "constant", None, False)
    tensor = plan.graph[argument.tensor]
    return Operand(
        argument.name,
        tensor.name,
        tensor.shape,
        argument.type,
        plan.storage[argument.tensor].bytes,
        plan.place(argument.tensor),
        plan.offsets.get(argument.tensor),
        argument.written,
    )


def _arena_tensors(plan: Plan, first: int) -> Iterator[ArenaTensor]:
    """One for each memory of its own; of an eliminated concatenation the result. first: number of the first kernel."""
    used: dict[TensorId, list[int]] = {}
    for step, planned in enumerate(plan.kernels):
        for argument in planned.arguments:
            if argument.tensor is not None and argument.tensor in plan.offsets:
                used.setdefault(plan.roots[argument.tensor], []).append(step)
    for root, steps in used.items():
        tensor, size = plan.graph[root], plan.storage[root].bytes
        yield ArenaTensor(tensor.name, tensor.shape, plan.offsets[root], size, first + min(steps), first + max(steps))
