"""Imports point one way, and each outside library has one place."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

import tflgpu
from tflgpu.artifact.serializer import APART
from tflgpu.kernels.architecture import ARCHITECTURES

PACKAGE = Path(tflgpu.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# For each room of the package, the other rooms that it may import: those that it stands on. A room is a folder of
# tflgpu/, or a module beside them.
FACTS = {"errors", "options", "target", "version"}
GRAPH = FACTS | {"graph", "model", "ops"}
PLANNING = GRAPH | {"kernels", "passes", "plan"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "checking": {"errors"},
    "options": {"checking"},
    "target": set(),
    "version": set(),
    "plugins": {"errors"},
    "graph": set(),
    "model": {"errors", "graph"},
    "ops": {"errors", "graph", "model", "plugins", "target"},
    "kernels": {"graph", "ops", "target"},
    "passes": {"errors", "graph", "kernels", "ops", "target"},
    "plan": {"errors", "graph", "kernels", "ops", "passes", "target"},
    "processes": set(),
    "frontend": GRAPH,
    "report": PLANNING | {"frontend"},
    "artifact": FACTS | {"graph", "model", "plugins", "report"},
    "codegen": PLANNING | {"artifact"},
    "fallback": {"artifact", "errors", "frontend", "graph", "model", "processes"},
    "runtime": FACTS | {"artifact", "fallback", "graph", "model", "processes", "report"},
    "compiler": PLANNING | {"artifact", "codegen", "fallback", "frontend", "report"},
    "measure": PLANNING | {"artifact", "codegen", "compiler", "fallback", "frontend", "report", "runtime"},
    "opening": FACTS | {"artifact", "compiler", "fallback", "frontend", "measure", "model", "report", "runtime"},
    "api": FACTS | {"artifact", "checking", "compiler", "graph", "model", "opening", "report", "runtime"},
    "inputs": {"errors", "model"},
    "evaluate": {"api", "artifact", "errors", "fallback", "inputs", "model", "options", "report", "version"},
    "batch": {"api", "artifact", "errors", "evaluate", "inputs", "model", "options", "runtime", "version"},
    "page": PLANNING | {"api", "compiler", "frontend", "measure", "report", "runtime"},
    "interpreter": GRAPH | {"api", "checking", "frontend", "opening", "runtime"},
    "hardware_accelerator": set(),
    "tensor_buffer": {"graph", "runtime"},
    "compiled_model": {"api", "checking", "errors", "frontend", "graph", "hardware_accelerator", "interpreter"}
    | {"model", "opening", "options", "runtime", "tensor_buffer"},
    "language": {"__init__", "errors", "model", "processes"},
    "litert_lm": {"__init__", "errors", "language"},
    "openai_server": {"errors", "language"},
    "__init__": FACTS | {"processes", "api", "artifact", "interpreter", "model", "report", "runtime"},
    "cli": PLANNING
    | {"__init__", "api", "artifact", "checking", "codegen", "compiler", "frontend", "processes"}
    | {"batch", "evaluate", "fallback", "inputs", "language", "measure", "openai_server", "page", "report", "runtime"},
    "__main__": {"cli"},
}

# The only rooms that may import these.
OWNERS = {
    # OpenCL C, where nothing is escaped, HTML, where everything is, and prompts, in a sandbox: three environments that
    # never meet.
    "jinja2": {"codegen", "language", "page"},
    "markupsafe": {"page"},
    "pyopencl": {"measure", "runtime"},
    "google": {"language"},
    "litert_lm_builder": {"language"},
    "fastapi": {"openai_server"},
    "pydantic": {"openai_server"},
    "prometheus_client": {"openai_server"},
    "uvicorn": {"cli"},
    "tflite": {"model"},
    "flatbuffers": {"fallback", "model"},
    "ai_edge_litert": {"evaluate", "fallback"},
    "cryptography": {"artifact"},
    "diskcache": {"artifact"},
    "filelock": {"batch"},
    "platformdirs": {"artifact"},
    "pyarrow": {"batch"},
    "ray": {"batch"},
    "safetensors": {"artifact"},
    "xxhash": {"artifact"},
    "PIL": {"inputs"},
    "pycocotools": {"evaluate"},
    "rich": {"cli"},
    "typer": {"cli"},
}


def room_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


NAMES = {
    ".".join(module.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): module
    for module in MODULES
}


@cache
def nodes_of(module: Path) -> tuple[ast.AST, ...]:
    """The syntax tree of a module, node by node."""
    return tuple(ast.walk(ast.parse(module.read_text())))


def imports(module: Path) -> Iterator[str]:
    """The absolute dotted names that a module imports; of a package of tflgpu its modules, or else the package."""
    for node in nodes_of(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module} has a relative import"
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in NAMES else node.module for name in inner)


@pytest.mark.parametrize("room", sorted({room_of(module) for module in MODULES}))
def test_imports_point_one_way(room: str) -> None:
    assert room in MAY_IMPORT, f"tflgpu/{room} is new: say here what it may import"
    for name in chain.from_iterable(imports(module) for module in MODULES if room_of(module) == room):
        package, _, rest = name.partition(".")
        if package == "tflgpu":
            imported = rest.split(".")[0] or "__init__"
            assert imported in MAY_IMPORT[room] | {room}, f"tflgpu/{room} must not import {name}"
        elif package in OWNERS:
            assert room in OWNERS[package], f"{package} is imported by tflgpu/{room}"


def test_the_rooms_form_no_circle() -> None:
    """The table above is itself one-way."""
    assert list(TopologicalSorter(MAY_IMPORT).static_order())


def test_what_is_left_out_of_the_keys_of_models_compiles_nothing() -> None:
    """A change there leaves every entry of the cache as it is."""
    compiling = {"api", "compiler"}
    while more := {room for name in compiling for room in MAY_IMPORT[name]} - compiling:
        compiling |= more
    assert MAY_IMPORT.keys() >= APART
    assert not APART & compiling


def test_modules_form_no_circle() -> None:
    """Within a room too. A package's own module stands for the names that it exports."""
    graph = {name: {n for n in imports(module) if n in NAMES} - {name} for name, module in NAMES.items()}
    assert list(TopologicalSorter(graph).static_order())


def registers(module: Path) -> set[str]:
    """``"lowering"`` and ``"rewrite"``: what decorators of a module register with architectures."""
    functions = (node for node in nodes_of(module) if isinstance(node, ast.FunctionDef))
    called = (d.func if isinstance(d, ast.Call) else d for function in functions for d in function.decorator_list)
    names = {decorator.attr for decorator in called if isinstance(decorator, ast.Attribute)}
    return {"lowering"} & names | ({"rewrite"} if {"rewrite", "fusion"} & names else set())


def test_no_module_registers_both_lowerings_and_rewrites() -> None:
    found = {str(module.relative_to(PACKAGE)): registers(module) for module in MODULES}
    assert {name for name, kinds in found.items() if len(kinds) > 1} == set()
    assert found["kernels/mma/rewrites.py"] == {"rewrite"}
    assert found["kernels/mma/pointwise_depthwise.py"] == {"lowering"}


def test_a_package_lists_every_module_that_registers_something() -> None:
    for folder in (PACKAGE / "kernels").iterdir():
        found = {
            ".".join(module.relative_to(folder).with_suffix("").parts)
            for module in folder.rglob("*.py")
            if registers(module)
        }
        if (folder / "__init__.py").exists():
            assert set(import_module(f"tflgpu.kernels.{folder.name}").KERNELS) == found, folder.name


def test_only_an_architecture_and_what_refines_it_name_it() -> None:
    """So that a new one is a folder, and needs no edit elsewhere."""
    folders = {each.name.partition("_")[0]: each for each in ARCHITECTURES}
    for module in MODULES:
        place = module.relative_to(PACKAGE).parts
        own = folders.get(place[1]) if place[0] == "kernels" and len(place) > 2 else None
        refined = set()
        while own is not None:
            refined.add(own.name.partition("_")[0])
            own = own.refines
        for name in imports(module):
            _, room, *rest = (*name.split("."), "")
            if room == "kernels" and rest[0] in folders.keys() - {"portable"}:
                assert rest[0] in refined, f"{'/'.join(place)} must not import {name}"


def test_only_declared_libraries_are_imported() -> None:
    declared = OWNERS.keys() | {"numpy"}
    outside = {name.partition(".")[0] for module in MODULES for name in imports(module)}
    assert outside - set(sys.stdlib_module_names) - {"tflgpu"} <= declared


def test_public_names_are_sorted_and_complete() -> None:
    assert list(tflgpu.__all__) == sorted(tflgpu.__all__)
    tree = ast.parse(Path(tflgpu.__file__).read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)  # those that are imported late stand under TYPE_CHECKING
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tflgpu.")
        for alias in node.names
    }
    assert imported == set(tflgpu.__all__)


def test_generated_text_is_never_read() -> None:
    """It is only put together."""
    modules = (module for module in MODULES if module.relative_to(PACKAGE).parts[0] == "codegen")
    assert [module.name for module in modules if "\nimport re\n" in module.read_text()] == []


def test_dir_shows_the_interface_only() -> None:
    assert {*dir(tflgpu)} == {*tflgpu.__all__, *tflgpu.LATE_MODULES}


def test_few_passes_go_through_all_nodes() -> None:
    """Rules match what is local, and queries of the graph collect; the others follow something through all of it."""
    modules = (module for module in MODULES if module.relative_to(PACKAGE).parts[0] in ("passes", "kernels"))
    found = list(chain.from_iterable(map(nodes_of, modules)))
    iterables = [node.iter for node in found if isinstance(node, ast.For | ast.comprehension)]
    calls = (node for node in found if isinstance(node, ast.Call) and ast.unparse(node.func) in ("map", "filter"))
    iterables += [call.args[-1] for call in calls]
    through = [each for each in iterables if re.fullmatch(r"(reversed\()?[\w.]+\.nodes\)?", ast.unparse(each))]
    assert len(through) <= 22


def test_few_numbers_of_kernels_are_constants_of_modules() -> None:
    """Others are rows of a table, or follow from the device."""
    modules = (module for module in MODULES if module.relative_to(PACKAGE).parts[0] == "kernels")
    statements = (node for module in modules for node in ast.parse(module.read_text()).body)
    values = (node.value for node in statements if isinstance(node, ast.Assign | ast.AnnAssign))
    assert sum(value is not None and is_number(value) for value in values) <= 60


def is_number(value: ast.expr) -> bool:
    """Whether an expression has nothing but numbers, such as ``48 << 10``."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)
