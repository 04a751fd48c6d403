"""NaN, infinity, overflow and the like: tflgpu gives what LiteRT's plain and reference kernels agree on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import pytest
from numpy.typing import NDArray

import tflgpu
from tests.ops.axes import FAMILIES
from tests.quick import on_first_runtime
from tests.support.running import options_of
from tests.support.side_by_side import joined
from tflgpu.options import KernelFamily

numerics = pytest.importorskip("scripts.pages.numerics", reason="LiteRT is missing")  # judges each corner

SECTIONS = numerics.sections()
CHECKED = [
    corner for corners in SECTIONS.values() for corner in corners if numerics.UNCHECKED in numerics.explanation(corner)
]


@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.parametrize("section", SECTIONS)
def test_equals_litert_where_its_kernels_agree(section: str, device_name: str) -> None:
    """All corners of a section are one program."""
    corners = SECTIONS[section]
    judges = [numerics.run_litert(corners, kernels) for kernels in ("plain", "reference")]
    for family in FAMILIES:
        outputs = iter(outputs_of(corners, device_name, family))
        for corner, plain, reference in zip(corners, *judges, strict=True):
            outcome = numerics.Outcome(tuple(islice(outputs, 2 if corner.code == "TOPK_V2" else 1)))
            agreed = plain.equals(reference) and not numerics.explanation(corner)
            note = f"{corner.code} of {corner.description}, {family}: {outcome}, LiteRT: {plain}"
            assert outcome.equals(plain) or not agreed, note


def outputs_of(corners: Sequence[numerics.Corner], device: str, kernels: KernelFamily) -> Iterable[NDArray[Any]]:
    options = options_of(device=device, kernels=kernels, fallback="forbid")
    with tflgpu.compile(joined(corner.model for corner in corners), options) as model:
        return model.run([x for corner in corners for x in corner.inputs]).values()


@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.parametrize("corner", CHECKED, ids=lambda corner: f"{corner.code}-{corner.description}")
def test_checks_find_what_litert_refuses(corner: numerics.Corner, device_name: str) -> None:
    [plain] = numerics.run_litert([corner], "plain")
    checked = numerics.run_tflgpu(corner, device_name, checks=True)
    assert (checked.refusal == "an error") == (plain.refusal == "an error")
