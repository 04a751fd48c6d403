"""A plan as text: every launch, its arguments, and where they live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape

from tflgpu.cli.console import picked
from tflgpu.cli.stages.graph_text import node_as_dict, origins, typed
from tflgpu.kernels.kernel import Argument
from tflgpu.plan import Plan, PlannedKernel


def plan_lines(plan: Plan, codes: Sequence[str]) -> list[str]:
    """``codes`` are the names of the model's operators."""
    target = plan.target
    lines = [
        f"[bold]target[/]     {target.family} kernels, {target.compute_units} compute units, {target.storage} storage",
        f"[bold]arena[/]      {plan.arena_bytes:,} bytes (lower bound {plan.arena_lower_bound:,})",
        f"[bold]constants[/]  {plan.constant_bytes:,} bytes",
    ]
    for number, planned in enumerate(plan.kernels):
        lines += ["", *_kernel_lines(number, planned, plan)]
        lines.append(f"       [dim]from {escape(origins(planned.node, codes))}[/]")
    return lines


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """Plain data for JSON."""
    return {
        "target": asdict(plan.target),
        **picked(plan, "arena_bytes", "arena_lower_bound", "constant_bytes"),
        "kernels": [_kernel_as_dict(k, plan) for k in plan.kernels],
    }


def _kernel_as_dict(planned: PlannedKernel, plan: Plan) -> dict[str, Any]:
    kernel = planned.kernel
    return {
        **picked(kernel, "template", "tiles", "local_size"),
        "scratch_bytes": kernel.workspace * 16,
        "macs": kernel.macs,
        "node": node_as_dict(planned.node),
        "arguments": [
            {
                **picked(a, "name", "type", "tensor"),
                "place": _place(a, plan),
                "arena_offset": None if a.tensor is None else plan.offsets.get(a.tensor),
                "bytes": _size(a, plan),
                "written": a.written,
            }
            for a in planned.arguments
        ],
    }


def _kernel_lines(number: int, planned: PlannedKernel, plan: Plan) -> Iterator[str]:
    kernel = planned.kernel
    workspace = f", {kernel.workspace * 16:,} bytes of local memory" if kernel.workspace else ""
    macs = f", {kernel.macs:,} multiply-adds" if kernel.macs else ""
    items = "work-item" if kernel.local_size == 1 else "work-items"
    grid = f"{kernel.tiles:,} tiles of {kernel.local_size} {items}"
    yield f"[dim]{number:>4}[/]   [cyan]{kernel.template}[/]  {grid}{workspace}{macs}"
    for a in planned.arguments:
        what = "" if a.tensor is None else typed(plan.graph[a.tensor])
        yield f"       {a.name:<9} {a.type:<5}  {what:<20} {_size(a, plan):>11,} bytes  {_where(a, plan)}"


def _where(argument: Argument, plan: Plan) -> str:
    place = _place(argument, plan)
    return place if argument.tensor is None or place != "arena" else f"arena + {plan.offsets[argument.tensor]:,}"


def _place(argument: Argument, plan: Plan) -> str:
    return "constant" if argument.tensor is None else plan.place(argument.tensor)


def _size(argument: Argument, plan: Plan) -> int:
    return argument.bytes if argument.tensor is None else plan.storage[argument.tensor].bytes
