"""Small faults of Python: bounds, numbers, signs, conditions, the order of operands, and calls that are left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import copy
from pathlib import Path

from scripts.mutate.mutant import Mutant

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
# Names of estimated times, by which planning chooses among kernels that compute the same.
ESTIMATES = re.compile(r"\b(?:Demand|Phase|InTurn|\w*Work)\b")
CHECKING = ("strict", "repr", "stacklevel")  # parameters by which a correct program does the same
ESTIMATING = ("costs.py", "demand.py")
OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """All mutants of a module, but for those of estimated times, which change no answer."""
    if Path(file).name in ESTIMATING:
        return
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    encoded = source.encode()

    def at(line: int, column: int) -> int:
        return len(encoded[: starts[line - 1] + column].decode())

    for node in _mutable(ast.parse(source)):
        for rule, changed in _changes(node):
            assert isinstance(node, ast.expr | ast.stmt)
            assert node.end_lineno is not None and node.end_col_offset is not None
            begin, end = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
            yield Mutant(file, begin, end, changed, rule)


def _mutable(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose meaning a test could see: no annotations, messages, documentation or assertions."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
                continue
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            if isinstance(node, ast.FunctionDef) and (node.name == "__repr__" or _estimates(node.returns)):
                continue
            if isinstance(node, ast.Call) and _estimates(node.func):
                continue
            if isinstance(node, ast.keyword) and node.arg in CHECKING:
                continue
            if isinstance(node, ast.UnaryOp) and getattr(getattr(tree, "func", None), "attr", "") == "reshape":
                continue  # numpy takes any negative number for -1
            if isinstance(node, ast.AST):
                yield node
                yield from _mutable(node)


def _estimates(node: ast.expr | None) -> bool:
    return node is not None and ESTIMATES.search(ast.unparse(node)) is not None


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=[right]):
            yield "comparison", _text(ast.Compare(left, [COMPARED[type(operator)]()], [right]))
        case ast.BinOp(left=left, op=operator, right=right):
            if type(operator) in COMPUTED:
                yield "operator", _text(ast.BinOp(left, COMPUTED[type(operator)](), right))
            if isinstance(operator, ast.Sub | ast.FloorDiv | ast.Div | ast.Mod):
                yield "order of operands", _text(ast.BinOp(right, operator, left))
        case ast.BoolOp(op=operator, values=values):
            yield "and, or", _text(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign", _text(operand)
        case ast.Constant(value=bool(value)):
            yield "flag", str(not value)
        case ast.Constant(value=int(value)):
            yield "number", str(value + 1)
        case ast.Expr(value=ast.Call()):
            yield "call left out", "pass"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "condition", _text(ast.IfExp(test, orelse, body))
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_NAMES:
            changed = copy(node)
            changed.func = ast.Name(OTHER_NAMES[name])
            yield "function", _text(changed)


def _text(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"
