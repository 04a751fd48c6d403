"""The way of a model through tflgpu, read from the code: the calls of ``tflgpu.compile``, and who imports whom.

Nothing of tflgpu is imported or run: all of it is read as syntax trees.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "tflgpu"

# Where the road begins: a module, a class of it, and its method.
START = ("tflgpu.opening.opener", "_Opening", "open")

Definition = ast.FunctionDef | ast.ClassDef


def packages() -> tuple[str, ...]:
    """The packages of tflgpu."""
    return tuple(sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))


@dataclass(frozen=True)
class Symbol:
    """A function or class: the module that defines it, as a dotted name, and its definition."""

    module: str
    definition: Definition
    owner: str = ""  # the class, of a method

    @property
    def part(self) -> str:
        """The package or module of tflgpu that it belongs to."""
        return self.module.split(".")[1]

    @property
    def name(self) -> str:
        own = self.definition.name
        return f"{self.owner}.{own}" if self.owner else own

    @property
    def result(self) -> ast.expr | None:
        """The annotation of what a call gives; None for a class."""
        return self.definition.returns if isinstance(self.definition, ast.FunctionDef) else None

    @property
    def result_name(self) -> str:
        """The type of a call's result, as text; empty for None."""
        if isinstance(self.definition, ast.ClassDef):
            return self.name
        text = ast.unparse(self.result) if self.result else "None"
        return "" if text == "None" else text


@cache
def _tree(module: str) -> ast.Module:
    path = PACKAGE.parent / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _is_module(name: str) -> bool:
    path = PACKAGE.parent / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def find(name: str, module: str) -> Symbol | str | None:
    """The meaning of ``name`` in ``module``: a symbol, or the dotted name of a module. Imports are followed."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, Definition) and node.name == name and node in _tree(module).body:
            return Symbol(module, node)
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tflgpu"):
            continue
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                inner = f"{node.module}.{alias.name}"
                return inner if _is_module(inner) else find(alias.name, node.module or "")
    return None


def _method(owner: Symbol, name: str) -> Symbol | None:
    """A method of a class; None if the class itself has none of this name."""
    for node in owner.definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return Symbol(owner.module, node, owner.definition.name)
    return None


@dataclass(frozen=True)
class Call:
    """A function of a package, and the module of tflgpu that calls it."""

    symbol: Symbol
    caller: str


@dataclass(frozen=True)
class _Scope:
    """Where a call stands: its module, the functions of the function around it, and the class of ``self``."""

    module: str
    inner: Mapping[str, ast.FunctionDef]
    owner: Symbol | None


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node in the order in which they run; the longer branch of an ``if`` before the other one."""
    if isinstance(node, ast.If):
        branches = sorted((node.body, node.orelse), key=lambda branch: -sum(len(ast.unparse(line)) for line in branch))
        yield from (node.test, *branches[0], *branches[1])
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        yield node.values[0]  # what follows is a default
    elif isinstance(node, ast.DictComp | ast.ListComp | ast.GeneratorExp):
        yield from reversed(list(ast.iter_child_nodes(node)))  # the iterable before the elements
    elif isinstance(node, ast.AnnAssign):
        yield from (part for part in (node.target, node.value) if part)
    elif not isinstance(node, ast.FunctionDef):
        yield from ast.iter_child_nodes(node)


class _Reader:
    """Collects calls in the order in which they run, and enters functions of modules outside of the packages."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._entered: set[ast.AST] = set()
        self._types: dict[str, Symbol] = {}  # of variables

    def enter(self, symbol: Symbol, owner: Symbol | None = None) -> None:
        """Read the body of a function, once. owner: the class of its ``self``."""
        if symbol.definition in self._entered:
            return
        self._entered.add(symbol.definition)
        inner = {n.name: n for n in ast.walk(symbol.definition) if isinstance(n, ast.FunctionDef)}
        for statement in symbol.definition.body:
            self._visit(statement, _Scope(symbol.module, inner, owner))

    def _visit(self, node: ast.AST, scope: _Scope) -> None:
        for part in _in_order(node):
            self._visit(part, scope)
        if isinstance(node, ast.Call):
            self._call(node.func, scope)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            made = self._made(node.value, scope.module)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if made and isinstance(target, ast.Name):
                    self._types[target.id] = made

    def _call(self, function: ast.expr, scope: _Scope) -> None:
        if isinstance(function, ast.Name) and function.id in scope.inner:
            self.enter(Symbol(scope.module, scope.inner[function.id]), scope.owner)
            return
        if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "self" and scope.owner:
            method = _method(scope.owner, function.attr)
            if method:
                self.enter(method, scope.owner)
            return
        symbol = self._resolved(function, scope.module)
        if symbol is None:
            return
        if symbol.part in packages():
            if symbol not in [earlier.symbol for earlier in self.calls]:
                self.calls.append(Call(symbol, scope.module.split(".")[1]))
        elif isinstance(symbol.definition, ast.FunctionDef):
            self.enter(symbol)

    def _resolved(self, function: ast.expr, module: str) -> Symbol | None:
        """The target of a call of ``name``, ``variable.method`` or ``module.name``, if it is tflgpu's."""
        found: Symbol | str | None = None
        if isinstance(function, ast.Name):
            found = find(function.id, module)
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            variable = self._types.get(function.value.id)
            if variable:
                return _method(variable, function.attr)
            base = find(function.value.id, module)
            found = find(function.attr, base) if isinstance(base, str) else None
        return found if isinstance(found, Symbol) else None

    def _made(self, call: ast.Call, module: str) -> Symbol | None:
        """The class of what a call gives, if it is one of tflgpu's."""
        symbol = self._resolved(call.func, module)
        if symbol is None or isinstance(symbol.definition, ast.ClassDef):
            return symbol
        found = find(ast.unparse(symbol.result), symbol.module) if symbol.result else None
        return found if isinstance(found, Symbol) and isinstance(found.definition, ast.ClassDef) else None


def calls() -> tuple[Call, ...]:
    """The functions of packages that ``tflgpu.compile`` calls, in the order in which it calls each first."""
    module, owner, method = START
    start = find(owner, module)
    assert isinstance(start, Symbol)
    first = _method(start, method)
    assert first, f"{module}.{owner} has no {method}"
    reader = _Reader()
    reader.enter(first, start)
    return tuple(reader.calls)


def imports() -> dict[str, frozenset[str]]:
    """For each package the packages that it imports."""
    known = set(packages())
    files = {package: (PACKAGE / package).rglob("*.py") for package in known}
    imported = {package: {part for path in paths for part in _imported(path)} for package, paths in files.items()}
    return {package: frozenset(parts & known - {package}) for package, parts in imported.items()}


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("tflgpu."))
