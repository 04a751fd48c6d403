"""``tflgpu inspect``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

import tflgpu
from tflgpu.cli.arguments import AsJson, ModelPath, PrecisionName
from tflgpu.cli.console import console, print_json, table

if TYPE_CHECKING:
    from tflgpu.report import Report


def inspect_model(
    model: ModelPath,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Plan for this device too; auto is the best one.", show_default=False),
    ] = None,
    precision: PrecisionName = "auto",
    as_json: AsJson = False,
) -> None:
    """Tell which operators of a model can run on a device, and why not the others.

    Needs no device. Given one, it also tells which kernel computes each operator, and the memory.
    """
    report = tflgpu.inspect(model)
    if device is not None and not report.reasons:
        report = _planned(model, tflgpu.Options(device=device, precision=precision))
    if as_json:
        print_json(report.as_dict())
        return
    console.print(_operators(report), "", _counts(report), sep="\n")
    if report.kernels is not None:
        arena, constants = decimal(report.arena_bytes or 0), decimal(report.constant_bytes or 0)
        console.print(f"{report.kernels} kernels, {arena} of activations, {constants} of constants")


def _planned(model: Path, options: tflgpu.Options) -> Report:
    """The report with what only a plan knows."""
    from tflgpu.api import plan_model
    from tflgpu.report import make_report
    from tflgpu.runtime.devices import choose

    lowered, plan = plan_model(model.read_bytes(), options, choose(options.device))
    return make_report(lowered, [plan])


def _operators(report: Report) -> Table:
    columns = ("#", "operator", "v", "where", "kernel", "reasons")
    planned = report.kernels is not None
    result = table(*(c for c in columns if planned or c != "kernel"), right=("#", "v", "kernel"))
    for o in report.operators:
        where = f"[red]{o.device}[/]" if o.reasons else o.device
        kernel = ["" if o.kernel is None else str(o.kernel)] if planned else []
        result.add_row(str(o.index), escape(o.code), str(o.version), where, *kernel, escape("; ".join(o.reasons)))
    return result


def _counts(report: Report) -> str:
    total = len(report.operators)
    refused = Counter(o.code for o in report.operators if o.reasons)
    line = f"[bold]{total - refused.total()} of {total}[/] operators can run on the device"
    if not refused:
        return line
    return f"{line}; the others: " + ", ".join(f"{n} {escape(code)}" for code, n in refused.most_common())
