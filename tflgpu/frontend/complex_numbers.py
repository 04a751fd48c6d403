"""Complex numbers do not cross between device and CPU: on the device they are two tensors, in files one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tflgpu.frontend.lowered import Entry
from tflgpu.model.model import FileTensor, Operator
from tflgpu.ops.declaration import COMPLEX

CROSSING = "its complex numbers come from the CPU or go there"


def keep_on_one_side(
    entries: Sequence[Entry], operators: Sequence[Operator], tensors: Sequence[FileTensor], outputs: Collection[int]
) -> tuple[Entry, ...]:
    """Return the entries with a reason for each operator that only its complex numbers keep from the device.

    Args:
        entries: The operators, with the reasons that are known.
        operators: Those of the entries.
        tensors: All tensors of the subgraph.
        outputs: Tensors that leave the device.
    """
    numbers = {t.index for t in tensors if t.dtype == COMPLEX}
    refused = {entry.index for entry in entries if entry.reasons}
    while found := set(_crossing(operators, numbers, outputs, refused)) if numbers else set[int]():
        refused |= found
    return tuple(replace(e, reasons=(CROSSING,)) if e.index in refused and not e.reasons else e for e in entries)


def _crossing(
    operators: Sequence[Operator], numbers: Collection[int], outputs: Collection[int], refused: Collection[int]
) -> Iterator[int]:
    on_cpu = [o for o in operators if o.index in refused]
    read, written = {*outputs, *(t for o in on_cpu for t in o.inputs)}, {t for o in on_cpu for t in o.outputs}
    for operator in operators:
        given, taken = read.intersection(operator.outputs), written.intersection(operator.inputs)
        if operator.index not in refused and not (given | taken).isdisjoint(numbers):
            yield operator.index
