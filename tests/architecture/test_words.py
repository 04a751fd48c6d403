"""Docstrings and comments name what they are of, and docstrings of public functions explain parameters."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "cache_format", "examples", "scripts", "templates", "tests", "tflgpu")

# A sentence that begins so has no subject of its own: the reader has to look for it in the code.
RIDDLE = re.compile(r"(?:What|Of|As|Those|With)\b")
COMMENTED_RIDDLE = re.compile(rf"#[#: ]*{RIDDLE.pattern}")  # in most files nowhere, so that they need no tokens

# Comments of templates and of C that is made of them.
TEMPLATE_COMMENT = re.compile(r"\{#-?\s*(.*)|/\*+\s*(.*)|(?:^|\s)//\s*(.*)", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def comments(text: str) -> Iterator[str]:
    """The first line of each comment; neighbouring lines without code are one comment."""
    ended = (0, False)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, is_alone = token.start[0], not token.line[: token.start[1]].strip()
            if not (is_alone and ended == (line - 1, True)):
                yield token.string.lstrip("#: ")
            ended = (line, is_alone)


def docstrings(text: str) -> Iterator[str]:
    """The docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Documented):
            yield ast.get_docstring(node) or ""
        if isinstance(node, ast.Module | ast.ClassDef):
            for target, after in pairwise(node.body):
                if isinstance(target, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                    yield str(getattr(after.value, "value", "")).strip()


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_and_no_comment_is_a_riddle(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.*")):
        if path.suffix == ".py":
            text = path.read_text(encoding="utf-8")
            words = [*(comments(text) if COMMENTED_RIDDLE.search(text) else ()), *docstrings(text)]
        elif path.suffix == ".j2":
            words = ["".join(groups) for groups in TEMPLATE_COMMENT.findall(path.read_text(encoding="utf-8"))]
        else:
            continue
        found += [f"{path.relative_to(ROOT)}: {each.splitlines()[0]}" for each in words if RIDDLE.match(each)]
    assert found == [], "\n".join(found)


# Rooms and modules whose public functions explain all parameters that their names and types do not.
EXPLAINED = (
    "*.py",
    "artifact",
    "batch",
    "checking",
    "codegen",
    "compiled_model",
    "evaluate",
    "fallback",
    "frontend",
    "graph",
    "inputs",
    "interpreter",
    "kernels/*.py",
    "language",
    "litert_lm",
    "measure",
    "model",
    "openai_server",
    "ops",
    "page",
    "passes",
    "plan",
    "report",
    "runtime",
    "target",
)

# Functions with these are called by others: a registry that says what they take, or callers of what they override.
REGISTERED = {"declare", "fusion", "lowering", "overload", "override", "property", "rewrite", "rule", "sized"}


def public_functions(body: list[ast.stmt]) -> Iterator[Function]:
    """The public functions and methods of a module or class."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            decorators = {ast.unparse(each).partition("(")[0].split(".")[-1] for each in node.decorator_list}
            if REGISTERED.isdisjoint(decorators):
                yield node


def says_all(argument: ast.arg) -> bool:
    """Tell whether a parameter needs no words: it is private, or has the name of its type, as in ``graph: Graph``."""
    kind = "" if argument.annotation is None else ast.unparse(argument.annotation).split(".")[-1]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
    return argument.arg in ("self", "cls", snake) or argument.arg.startswith("_")


def unexplained(function: Function) -> bool:
    """Tell whether a function has parameters that need words, and no section for them."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return not all(map(says_all, arguments)) and "\nArgs:\n" not in (ast.get_docstring(function) or "")


@pytest.mark.parametrize("room", EXPLAINED)
def test_public_functions_explain_their_parameters(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
        for path in sorted((ROOT / "tflgpu").glob(room if "*" in room else f"{room}/**/*.py"))
        for function in public_functions(ast.parse(path.read_text(encoding="utf-8")).body)
        if unexplained(function)
    ]
    assert found == [], "\n".join(found)
