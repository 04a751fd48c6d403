"""Adding an operator touches a declaration, a template and the test table: what was forgotten is named here."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tflgpu.kernels
from tests.ops.case import Row
from tests.ops.table import ROWS
from tests.support.targets import CPU, GPU
from tests.support.templates import kernel_templates
from tflgpu.codegen.environment import template_folder
from tflgpu.frontend.lower import lower
from tflgpu.kernels.architecture import LOWERINGS, architectures, lowerings
from tflgpu.model.reader import read_model
from tflgpu.ops import REGISTRY
from tflgpu.ops.epilogue_ops import ACTIVATIONS, FUNCTIONS
from tflgpu.target import Target

FAMILIES: tuple[Literal["cpu", "gpu"], ...] = ("cpu", "gpu")
KERNELS = Path(tflgpu.kernels.__file__).parent


def test_every_operator_has_a_row() -> None:
    assert REGISTRY.keys() - {row.op for row in ROWS} == set(), "declared operators without a row in tests/ops"
    assert {row.op for row in ROWS} - REGISTRY.keys() == set(), "rows of operators that are not declared"


def test_row_names_are_unique() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


def test_every_epilogue_function_has_a_macro() -> None:
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(template_folder()))
    modules = [environment.get_template(f"access/{name}.cl.j2").module for name in ("epilogue_ops", "wide_ops")]
    macros = {name for m in modules for name in dir(m) if isinstance(getattr(m, name), jinja2.runtime.Macro)}
    assert FUNCTIONS.keys() - macros == set(), "epilogue functions without a macro"


def test_activations_are_epilogue_functions() -> None:
    assert set(ACTIVATIONS.values()) - {""} <= FUNCTIONS.keys()


def test_every_kind_has_a_kernel_on_both_families() -> None:
    """A lowering without a condition, at the end of the list."""
    architectures()
    for family in FAMILIES:
        target = Target(family=family, compute_units=4, storage="half")
        kinds = {kind for kind in LOWERINGS if any(each.when is None for each in lowerings(kind, target))}
        # Planning makes these nodes, each for the architecture that has the kernel.
        made = {
            "excite",
            "excited_pointwise",
            "mapped_pointwise",
            "convolution_depthwise",
            "pointwise_depthwise",
            "depthwise_pointwise",
            "shares",
            "layer_of_mean",
            "tap_sums",
            "join_attention",
        }
        assert LOWERINGS.keys() - kinds <= made


def test_lowerings_of_refining_architectures_come_first() -> None:
    architectures()
    for target in (CPU, replace(GPU, matrix_unit="m16n8k16")):
        for kind in LOWERINGS:
            depths = [lowering.architecture.depth for lowering in lowerings(kind, target)]
            assert depths == sorted(depths, reverse=True)


def test_modules_of_an_architecture_are_imported_for_its_devices_only() -> None:
    program = """
import sys
from tests.support.targets import CPU
from tflgpu.kernels.architecture import lowerings
assert "tflgpu.kernels.cpu.convolution_kernels" not in sys.modules
assert lowerings("convolution", CPU)
assert "tflgpu.kernels.cpu.convolution_kernels" in sys.modules
print(*(name for name in sys.modules if name.startswith(("tflgpu.kernels.gpu.", "tflgpu.kernels.mma.gemm"))))
"""
    root = Path(tflgpu.kernels.__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert ended.stdout.split() == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@settings(max_examples=5)  # of each row: the kinds depend on the operator, hardly on shapes
@given(data=st.data())
def test_every_emitted_kind_has_a_kernel(row: Row, data: st.DataObject) -> None:
    lowered = lower(read_model(data.draw(row.case(fused=False)).model))
    assert lowered.obstacles == ()
    assert all(lowerings(node.kind, target) for node in lowered.graph.nodes for target in (CPU, GPU))


def test_every_template_belongs_to_a_kernel() -> None:
    """Lowerings name their template in a literal."""
    literals = {
        node.value
        for module in KERNELS.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert kernel_templates() - literals == set(), "templates that no kernel names"
