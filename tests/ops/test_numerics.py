"""NaN, infinity, overflow and the like: tflgpu gives what LiteRT's plain and reference kernels agree on."""

from __future__ import annotations

import pytest

from tests.ops.axes import FAMILIES
from tests.quick import on_first_runtime

numerics = pytest.importorskip("scripts.pages.numerics", reason="LiteRT is missing")  # judges each corner

CORNERS = [corner for corners in numerics.sections().values() for corner in corners]
CHECKED = [corner for corner in CORNERS if numerics.UNCHECKED in numerics.explanation(corner)]


def is_of_some(corner: numerics.Corner, every: int = 4) -> bool:
    return any(corner is one for one in CORNERS[::every])


def is_quick(corner: numerics.Corner, device_name: str) -> bool:
    return is_of_some(corner, every=16) and on_first_runtime(device_name)


@pytest.mark.quick(when=is_quick)
@pytest.mark.second_runtime(when=lambda corner: is_of_some(corner))
@pytest.mark.parametrize("corner", CORNERS, ids=lambda corner: f"{corner.code}-{corner.description}")
def test_equals_litert_where_its_kernels_agree(corner: numerics.Corner, device_name: str) -> None:
    plain, reference = numerics.run_litert(corner, "plain"), numerics.run_litert(corner, "reference")
    agreed = plain.equals(reference) and not numerics.explanation(corner)
    for family in FAMILIES:
        outcome = numerics.run_tflgpu(corner, device_name, family)
        assert outcome.equals(plain) or not agreed, f"{family}: {outcome}, LiteRT: {plain}"


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("corner", CHECKED, ids=lambda corner: f"{corner.code}-{corner.description}")
def test_checks_find_what_litert_refuses(corner: numerics.Corner, device_name: str) -> None:
    refused = numerics.run_litert(corner, "plain").refusal == "an error"
    assert (numerics.run_tflgpu(corner, device_name, checks=True).refusal == "an error") == refused
