"""``tflgpu inspect``."""

from __future__ import annotations

from collections import Counter

from rich.markup import escape

import tflgpu
from tflgpu.cli.arguments import AsJson, ModelPath
from tflgpu.cli.console import console, print_json, table


def inspect_model(model: ModelPath, as_json: AsJson = False) -> None:
    """Tell which operators of a model can run on a device, and why not the others. Needs no device."""
    report = tflgpu.inspect(model)
    if as_json:
        print_json(report.as_dict())
        return
    listing = table("#", "operator", "v", "where", "kernel", "reasons", right=("#", "v", "kernel"))
    for o in report.operators:
        where = f"[red]{o.device}[/]" if o.reasons else o.device
        kernel = "" if o.kernel is None else str(o.kernel)
        listing.add_row(str(o.index), escape(o.code), str(o.version), where, kernel, escape("; ".join(o.reasons)))
    console.print(listing)
    counts = Counter(o.code for o in report.operators)
    refused = Counter(o.code for o in report.operators if o.reasons)
    console.print(
        f"[bold]{counts.total() - refused.total()} of {counts.total()}[/] operators can run on the device; "
        f"{len(counts) - len(refused)} of {len(counts)} kinds entirely"
    )
    if refused:
        console.print("not on the device: " + ", ".join(f"{n} {escape(code)}" for code, n in refused.most_common()))
