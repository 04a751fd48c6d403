"""Kernels are chosen by what a device has and does, not by who made it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("frontend", "graph", "passes", "ops", "kernels", "target", "plan", "codegen")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / "tflgpu" / room).rglob("*.py"))
TEMPLATES = sorted((ROOT / "templates").rglob("*.j2"))

MAKERS = "nvidia|intel|amd|radeon|mali|adreno|qualcomm|powervr|pocl|rusticl|mesa|hopper|ampere"
MAKER = re.compile(rf"(?<![a-z])(?:{MAKERS})(?![a-z])", re.IGNORECASE)
COMMENT = re.compile(r"\{#.*?#\}|/\*.*?\*/|//[^\n]*", re.DOTALL)


def code_of(source: str) -> str:
    """A module's code without its comments and documentation."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value = ast.Constant(None)
    return ast.unparse(tree)


@pytest.mark.parametrize("paths", [SOURCES, TEMPLATES], ids=["modules", "templates"])
def test_planning_knows_no_makers(paths: list[Path]) -> None:
    assert len(paths) > 20
    found = {}
    for path in paths:
        text = path.read_text()
        code = code_of(text) if path.suffix == ".py" else COMMENT.sub("", text)
        names = MAKER.findall(f"{path.relative_to(ROOT)}\n{code}")
        if names:
            found[path] = names
    assert found == {}


def test_a_maker_would_be_found() -> None:
    assert MAKER.findall(code_of('"""AMD"""\nif NVIDIA_GPU or name == "ARM Mali": pass  # Intel')) == ["NVIDIA", "Mali"]
