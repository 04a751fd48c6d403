"""A sample of what the compilers of Intel's, AMD's and NVIDIA's GPUs make of the kernels.

``python -m tests.drivers.offline`` has everything.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.drivers.debian import FOLDER
from tests.drivers.offline.compilers import Nvidia, compilers_root, kept_ptx
from tests.drivers.offline.programs import CHIPS, SPILLS, Chip, case_programs, compiled, sources

pytestmark = pytest.mark.full("compilers that are not everywhere")

SAMPLED = ("arc-a770", "radeon-rx-7900-xtx", "a100")
CASES = ("convolutions", "attentions", "softmaxes")
MODELS = ("mobilenet_v1_0.25_224_1_default_1", "trained_lstm")


@pytest.fixture(scope="module")
def root() -> Path:
    found = compilers_root(Path(os.environ.get(FOLDER, "/nowhere")))
    if not (found / "usr/bin").is_dir():
        pytest.skip(f"{FOLDER} names no folder with compilers; `python -m tests.drivers.offline FOLDER none` makes one")
    return found


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip.model in SAMPLED], ids=lambda chip: chip.model)
def test_kernels_compile_without_spills(chip: Chip, root: Path, shared: Path, tmp_path: Path) -> None:
    """Each kernel that does spill is listed with a reason."""
    if isinstance(chip.compiler, Nvidia) and not (root / Nvidia.assembler).exists():
        pytest.skip("the CUDA wheel with ptxas is not there")
    programs = dict(case_programs(chip, "fp32", CASES))
    for model in MODELS:
        programs[model] = sources((shared / "models" / f"{model}.tflite").read_bytes(), chip, "fp16")
    found = {name: compiled(text, chip, root, tmp_path, name) for name, text in programs.items()}
    assert all(found.values()), "a program without kernels"
    spilling = {kernel.template for kernels in found.values() for kernel in kernels if kernel.spilled}
    assert spilling <= {template for model, template in SPILLS if model == chip.model}


def test_ptx_is_shared_with_younger_chips(tmp_path: Path) -> None:
    assert kept_ptx(tmp_path / "nowhere", "sm_80") is None
    for chip in ("sm_80", "sm_90"):
        (tmp_path / f"{chip}.ptx").touch()
    found = {chip: kept_ptx(tmp_path, chip) for chip in ("sm_75", "sm_86", "sm_90", "sm_100")}
    assert {chip: ptx and ptx.stem for chip, ptx in found.items()} == {
        "sm_75": None,
        "sm_86": "sm_80",
        "sm_90": "sm_90",
        "sm_100": "sm_90",
    }
