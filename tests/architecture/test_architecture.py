"""Imports point one way, and each outside library has one place."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tflgpu

PACKAGE = Path(tflgpu.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# What each part of the package may import of the others, besides itself. Parts are modules or subpackages of tflgpu.
BASE = {"errors", "options", "target", "layout", "stopwatch", "tensor_info", "source", "version"}
STAGES = BASE | {
    "ir",
    "quantization",
    "tflite",
    "partition",
    "ops",
    "entry_point",
    "lower",
    "passes",
    "plan",
    "codegen",
}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "options": set(),
    "target": set(),
    "layout": set(),
    "stopwatch": set(),
    "source": set(),
    "version": set(),
    "tensor_info": {"layout"},
    "ir": BASE,
    "sparsity": BASE,
    "cache": BASE,
    "tflite": BASE | {"sparsity"},
    "quantization": BASE | {"ir", "tflite"},
    "ops": BASE | {"ir", "quantization", "tflite"},
    "partition": BASE | {"tflite"},
    "entry_point": BASE | {"partition", "tflite"},
    "variables": BASE | {"ir", "quantization", "tflite"},
    "lower": BASE | {"ir", "quantization", "tflite", "ops", "entry_point", "variables"},
    "passes": BASE | {"ir", "quantization", "ops"},
    "plan": BASE | {"ir", "quantization", "ops"},
    "codegen": BASE | {"executable", "ir", "ops", "plan"},
    "resize": BASE | {"entry_point", "lower"},
    "report": {"tensor_info"},
    "advice": STAGES | {"report"},
    "reporting": STAGES | {"advice", "report"},
    "interpreter": BASE,
    "submodel": BASE | {"partition"},
    "executable": BASE,
    "link": STAGES | {"executable"},
    "artifact": BASE | {"executable", "report"},
    "compiler": STAGES | {"artifact", "executable", "interpreter", "link", "report", "reporting", "resize", "submodel"},
    "runtime": BASE | {"executable"},
    "records": set(),
    "build": BASE | {"cache", "runtime"},
    "serializer": BASE | {"artifact", "build", "cache", "records", "runtime"},
    "trace": STAGES | {"compiler", "interpreter", "link", "runtime", "submodel"},
    "race": set(),
    "instance": BASE | {"artifact", "build", "cache", "interpreter", "race", "runtime"},
    "tuning": STAGES | {"build", "cache", "compiler", "runtime", "serializer"},
    "arguments": BASE | {"runtime"},
    "api": BASE
    | {"arguments", "artifact", "cache", "compiler", "instance", "report", "runtime", "serializer", "tuning"},
    "cli": STAGES
    | {"cache", "compiler", "trace", "runtime", "build", "report", "api", "serializer", "writer", "__init__"},
    "tensor_details": {"layout", "tflite"},
    "drop_in": BASE | {"api", "entry_point", "tensor_details", "tflite"},
    "__init__": BASE | {"api", "cache", "drop_in", "report", "runtime"},
    "__main__": {"cli"},
    "writer": BASE | {"writer_options"},
    "writer_options": set(),
}

# The only parts that may import these.
OWNERS = {
    "jinja2": {"codegen"},
    "pyopencl": {"runtime", "build"},
    "tflite": {"tflite", "sparsity", "writer", "writer_options"},
    "flatbuffers": {"tflite", "writer", "writer_options", "submodel"},
    "ai_edge_litert": {"interpreter", "submodel", "cli"},
    "diskcache": {"cache"},
    "farmhash": {"cache"},
    "platformdirs": {"cache"},
    "safetensors": {"cache"},
    "xxhash": {"cache"},
}


def part_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


WARP_TILES = set(map(part_of, MODULES))


def imports(module: Path) -> Iterator[str]:
    """The absolute dotted names that a module imports; of the package itself down to its parts."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            if node.module == "tflgpu":
                yield from (f"tflgpu.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_imports_point_one_way(module: Path) -> None:
    part = part_of(module)
    assert part in MAY_IMPORT, f"tflgpu/{part} is new: say here what it may import"
    for name in imports(module):
        package, _, rest = name.partition(".")
        if package == "tflgpu":
            imported = rest.split(".")[0]
            if imported not in WARP_TILES:  # the package itself, or a name that it exports
                imported = "__init__"
            assert imported in MAY_IMPORT[part] | {part}, f"tflgpu/{part} must not import {name}"
        elif package in OWNERS:
            assert part in OWNERS[package], f"{package} is imported by tflgpu/{part}"


def test_import_order_has_no_circle() -> None:
    """The table above is itself one-way."""
    assert list(TopologicalSorter(MAY_IMPORT).static_order())


def test_only_declared_libraries_are_imported() -> None:
    declared = {"flatbuffers", "jinja2", "numpy", "PIL", "pyopencl", "rich", "tflite", "typer", "ai_edge_litert"}
    declared |= {"diskcache", "farmhash", "platformdirs", "safetensors", "xxhash"}
    outside = {name.partition(".")[0] for module in MODULES for name in imports(module)}
    assert outside - set(sys.stdlib_module_names) - {"tflgpu"} <= declared


def test_public_names_are_sorted_and_complete() -> None:
    assert list(tflgpu.__all__) == sorted(tflgpu.__all__)
    tree = ast.parse(Path(tflgpu.__file__).read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    assert imported == set(tflgpu.__all__)
