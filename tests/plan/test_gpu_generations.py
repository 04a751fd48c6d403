"""Plans for NVIDIA's described GPUs: the executor, and instructions that their generation has."""

from __future__ import annotations

import re

import pytest

from tests.support.fixed_cases import fixed_cases
from tflgpu.compiler import compile_model
from tflgpu.measure.known_devices import device_model
from tflgpu.options import options_of
from tflgpu.runtime.opencl.devices import PTX_HALF_MATRICES, PTX_MEMORY_MODEL

# Compute capabilities, as NVIDIA lists them.
GENERATIONS = {
    "t4": (7, 5),
    "a100": (8, 0),
    "rtx-3090": (8, 6),
    "rtx-4090": (8, 9),
    "h100": (9, 0),
    "b200": (10, 0),
    "rtx-5090": (12, 0),
}

# Instructions of kernels, and the compute capability from which on the PTX ISA has them.
INSTRUCTIONS = {
    r"mma\.sync\.aligned\.m16n8k16\.": (8, 0),
    r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32": (8, 0),
    r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.f16": (7, 5),
    r"cp\.async\.": (8, 0),
    r"ldmatrix\.": (7, 5),
    r"(max|min)\.NaN\.f32": (8, 0),
    r"cvt\.r[nz]\.f16x2\.f32": (8, 0),
    r"red\.release\.gpu\.": (7, 0),
    r"ld\.acquire\.gpu\.": (7, 0),
}


@pytest.mark.parametrize("name", GENERATIONS)
def test_facts_are_those_of_the_generation(name: str) -> None:
    generation, device = GENERATIONS[name], device_model(name).device
    assert device.ptx == (generation >= PTX_MEMORY_MODEL)
    assert device.executor == ("auto" if device.ptx else "launch")
    assert device.matrix_units == (generation >= PTX_HALF_MATRICES)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", ["t4", "a100"])
def test_kernels_have_instructions_of_the_generation(name: str, precision: str) -> None:
    """The models are small, so that the persistent executor is the faster one on both."""
    options = options_of({"precision": precision})
    target = device_model(name).target(options)
    text = ""
    for case in ("convolutions", "attentions"):
        (artifact,) = compile_model(fixed_cases()[case].model, options, target)
        assert all(piece.executable.persistent for piece in artifact.pieces)
        text += "".join(piece.source for piece in artifact.pieces)
    found = {since for pattern, since in INSTRUCTIONS.items() if re.search(pattern, text)}
    assert max(found) <= GENERATIONS[name]
    assert (min(found), max(found)) == ((7, 0), PTX_HALF_MATRICES if target.matrix_unit else PTX_MEMORY_MODEL)
    assert ("mma_" in text) == (target.matrix_unit is not None)
