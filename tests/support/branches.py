"""Counts which branches of the templates are rendered: of ``if`` and of conditional expressions, loops, macros.

While tests run, each branch notes that it was reached (:func:`count_branches`), and each process leaves what it noted
in a folder. A branch is known by its template, the text of its line, and which one of that line it is: lines may
move. ``branches_without_case.json`` says how many of each template no case reaches yet: they may only fall.
"""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator

from tflgpu.codegen.environment import Bytecode, environment, template_folder

FOLDER = "TFLGPU_TESTS_BRANCHES"  # where processes leave what they have reached
KNOWN = Path(__file__).with_name("branches_without_case.json")
REACHED = "_branch_is_reached"  # the name that templates call

reached: set[str] = set()


def _reach(branch: str) -> bool:
    reached.add(branch)
    return False


def marked(tree: nodes.Template, name: str) -> list[str]:
    """Let each branch of a template say that it is reached. Returns their names."""
    lines, found, seen = (template_folder() / name).read_text().splitlines(), list[str](), Counter[str]()

    def call(node: nodes.Node, kind: str) -> nodes.Call:
        text = f"{name.removesuffix('.cl.j2')}: {lines[node.lineno - 1].strip()} -> {kind}"
        seen[text] += 1
        found.append(text if seen[text] == 1 else f"{text} {seen[text]}")
        function = nodes.Name(REACHED, "load", lineno=node.lineno)
        return nodes.Call(function, [nodes.Const(found[-1])], [], None, None, lineno=node.lineno)

    def statement(node: nodes.Node, kind: str) -> nodes.ExprStmt:
        return nodes.ExprStmt(call(node, kind), lineno=node.lineno)

    later = {id(each) for node in tree.find_all(nodes.If) for each in node.elif_}
    for node in list(tree.find_all((nodes.If, nodes.For, nodes.Macro, nodes.CallBlock))):
        if isinstance(node, nodes.If) and id(node) not in later:
            node.else_ = [statement(node, "else"), *node.else_]
        node.body = [statement(node, type(node).__name__.lower()), *node.body]
    for node in list(tree.find_all(nodes.CondExpr)):
        node.expr1 = nodes.Or(call(node, "one"), node.expr1, lineno=node.lineno)
        node.expr2 = nodes.Or(call(node, "other"), node.expr2 or nodes.Const(""), lineno=node.lineno)
    tree.set_environment(environment())
    return found


class _Counting(CodeGenerator):
    def visit_Template(self, node: nodes.Template, frame: object = None) -> None:  # noqa: N802  Jinja's name
        if self.name and (template_folder() / self.name).exists():
            marked(node, self.name)
        super().visit_Template(node, frame)


class _CountingBytecode(Bytecode):
    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        return super().get_cache_key(name, f"{filename} {sha256(Path(__file__).read_bytes()).hexdigest()}")


def count_branches() -> None:
    """From now on, in this process."""
    made = environment()
    made.code_generator_class, made.bytecode_cache = _Counting, _CountingBytecode()
    made.globals[REACHED] = _reach
    atexit.register(leave)


def leave() -> None:
    """Leave what was reached for others to read."""
    folder = Path(os.environ.get(FOLDER, ""))
    if reached and folder.is_dir():
        (folder / str(os.getpid())).write_text("\n".join(reached))


def all_branches() -> Iterator[str]:
    """The branches of all templates of kernels and executors."""
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    for path in sorted(template_folder().rglob("*.cl.j2")):
        yield from marked(plain.parse(path.read_text()), str(path.relative_to(template_folder())))


def unknown() -> list[str]:
    """The branches of templates that have more branches without a case than is known."""
    known, found = json.loads(KNOWN.read_text()), without_case()
    counts = Counter(map(_template, found))
    return [branch for branch in found if counts[_template(branch)] > known.get(_template(branch), 0)]


def _template(branch: str) -> str:
    return branch.partition(": ")[0]


def lines() -> list[str]:
    """The lines that the end of a run prints."""
    count, new = len(without_case()), unknown()
    return [
        f"{count} branches of templates have no case",
        *(f"a template with more of them than {KNOWN.name} says has {branch}" for branch in new),
    ]


@cache
def without_case() -> list[str]:
    """The branches that no process has reached which left something."""
    folder = Path(os.environ[FOLDER])
    found = reached.union(*(path.read_text().splitlines() for path in folder.iterdir()))
    return [branch for branch in all_branches() if branch not in found]
