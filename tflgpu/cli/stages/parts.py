"""The parts in which a model runs: graphs for the device, and operators for the CPU between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape

from tflgpu.compiler import lower_file
from tflgpu.frontend.control_flow.pieces import Call, Loop, LoweredPiece, PartedLoop
from tflgpu.frontend.frontend import Frontend
from tflgpu.options import Options


@dataclass(frozen=True)
class Part:
    """operators: by index in the file. role: what of a loop or branch it is; else empty. piece: None on the CPU."""

    operators: tuple[int, ...]
    role: str
    piece: LoweredPiece | None


def parts_of(data: bytes, options: Options, missing_types: tuple[str, ...] = ()) -> tuple[list[Part], list[str]]:
    """Return the parts in the order in which they run, and the names of the model's operators.

    Raises UnsupportedError if an operator has nowhere to run.
    """
    frontend = lower_file(data, options, missing_types)
    return list(_parts(frontend)), [entry.code for entry in frontend.lowered.entries]


def _parts(frontend: Frontend) -> Iterator[Part]:
    for partition in frontend.partitions():
        if not partition.on_device:
            yield Part(partition.operators, "", None)
        for role, piece in zip(_roles(frontend.call(partition)), frontend.pieces(partition), strict=False):
            yield Part(partition.operators, role, piece)


def _roles(call: Call | None) -> Sequence[str]:
    if call is None:
        return ("",)
    if isinstance(call, PartedLoop):
        return ("condition", *(f"part {number} of the body" for number in range(1, len(call.pieces))))
    return ("body", "condition") if isinstance(call, Loop) else ("then", "else")


def heading(number: int, part: Part, codes: Sequence[str]) -> str:
    """``part 1 on the CPU: operator 63 TFLite_Detection_PostProcess``."""
    place = "the CPU" if part.piece is None else "the device"
    named = [f"{i} {codes[i]}" for i in part.operators]
    listed = part.piece is None or len(named) == 1
    what = ", ".join(named) if listed else f"{len(named)} operators from {named[0]} to {named[-1]}"
    role = f", {part.role}" if part.role else ""
    return f"[bold]part {number} on {place}{role}:[/] {escape(what)}"


def part_as_dict(part: Part, stage: dict[str, Any] | None) -> dict[str, Any]:
    """stage: what became of its graph; None on the CPU."""
    place = "cpu" if part.piece is None else "device"
    return {"place": place, "role": part.role or None, "operators": part.operators, "stage": stage}
