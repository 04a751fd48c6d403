"""Write the skeleton of an operator: ``python scripts/new_operator.py HARD_SIGMOID --family elementwise``.

Three files of the checkout get a piece each, at their end:

    tflgpu/ops/*/FAMILY.py      the declaration: what the operator takes, and the nodes that it becomes
    tests/ops/reference.py      what it computes, in float64 numpy
    tests/ops/rows/*.py         the row of the op table, which draws a small network around it

The module of rows has the family's name, unless --rows says otherwise. With --reference windows, what it computes
goes to windows.py instead.

Each piece has a TODO. Until the last of them is done, the test of the row fails and says which is next.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

REFERENCES = ("reference", "windows")  # modules of tests/ops/

LINE = 120  # characters, as in pyproject.toml

DECLARATION = '''

@declare("{code}", versions=1, inputs={count})
def {name}(site: Site, emit: Emitter) -> Tensor:
    """TODO: the nodes of {code}."""
    raise NotImplementedError("TODO: emit the nodes of {code}, in {file}")
'''

REFERENCE = """

def {name}({parameters}) -> Array:
    raise NotImplementedError("TODO: compute {code} in float64 numpy, in {file}")
"""

ROW = """def {name}(net: Net) -> Tensor:
    shape = net.draw(FEATURE_MAP)  # TODO: shapes, types and options as converters write them
{inputs}
    return net.op("{code}", [{names}], {reference}.{name}({values}))


"""

OPERANDS = "xyzabcdefgh"  # names of an operator's inputs


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("code", help="BuiltinOperator's name of it, or that of a custom operator")
    parser.add_argument("--family", required=True, help="a module of tflgpu/ops/*/, such as elementwise")
    parser.add_argument("--reference", default="reference", choices=REFERENCES, help="a module of tests/ops/")
    parser.add_argument("--rows", help="a module of tests/ops/rows/, by default the one with the family's name")
    parser.add_argument("--inputs", type=int, default=1, help="how many there are")
    options = parser.parse_args(arguments)
    try:
        names = options.family, options.reference, options.rows or options.family
        for path in write_operator(options.code, *names, options.inputs):
            print(f"written: {path.relative_to(ROOT)}")
    except ValueError as refusal:
        sys.exit(f"error: {refusal}")
    print(f"see what is to be done: pytest -n0 tests/ops -k {function_name(options.code)}")


def write_operator(code: str, family: str, reference: str, rows: str, inputs: int) -> list[Path]:
    """The files, changed. Raises ValueError, and changes none, for what does not exist or exists already."""
    declarations = _module("tflgpu/ops/*/*.py", family)
    judge = _module("tests/ops/*.py", reference)
    table = _module("tests/ops/rows/*.py", rows)
    name = function_name(code)
    builtin = _check_name(code, name, (declarations, judge, table))
    if not 1 <= inputs <= len(OPERANDS):
        raise ValueError(f"an operator with {inputs} inputs has to be written by hand")
    operands = OPERANDS[:inputs]

    def filled(pattern: str, path: Path) -> str:
        return pattern.format(
            code=code,
            name=name,
            count=inputs,
            file=path.relative_to(ROOT),
            parameters=", ".join(f"{x}: Array" for x in operands),
            inputs="\n".join(f"    {x} = net.input(net.normal(shape))" for x in operands),
            names=", ".join(operands),
            reference=reference,
            values=", ".join(f"{x}.value" for x in operands),
        )

    declared = declarations.read_text() + filled(DECLARATION, declarations)
    declared = _with_import(declared, "tflgpu.graph.ir", "Tensor")
    declared = _with_import(declared, "tflgpu.ops.declaration", "Emitter", "Site", "declare")
    row = f'Row("{name}", "{code}", {name}{"" if builtin else ", litert=False"})'
    listed = _with_row(table.read_text(), filled(ROW, table), row)
    listed = _with_import(listed, "tests.ops", reference)
    listed = _with_import(listed, "tests.ops.case", "Net", "Row", "Tensor")
    listed = _with_import(listed, "tests.ops.strategies", "FEATURE_MAP")
    texts = {
        declarations: declared,
        judge: judge.read_text() + filled(REFERENCE, judge),
        table: listed,
    }
    for path, text in texts.items():
        path.write_text(text)
    return list(texts)


def function_name(code: str) -> str:
    """``hard_sigmoid`` for ``HARD_SIGMOID`` and for ``HardSigmoid``."""
    return code.lower() if code.isupper() else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", code).lower()


def _module(pattern: str, name: str) -> Path:
    """The one module of a name among the files of the checkout that fit ``pattern``."""
    modules = {path.stem: path for path in sorted(ROOT.glob(pattern)) if path.stem != "__init__"}
    if name not in modules:
        raise ValueError(f"{pattern} has no module {name!r}; there are: {', '.join(modules)}")
    return modules[name]


def _check_name(code: str, name: str, modules: Sequence[Path]) -> bool:
    """Whether the operator is one of TensorFlow Lite's. Raises ValueError if the code or the function is taken."""
    sys.path.insert(0, str(ROOT))
    import tflite  # after the checkout has been put before an installed package

    from tflgpu.ops import REGISTRY

    if not name.isidentifier():
        raise ValueError(f"{code!r} gives no name for a function")
    if code in REGISTRY:
        raise ValueError(f"{code} is declared already")
    for path in modules:
        if re.search(rf"^(def |class )?{name}\b", path.read_text(), flags=re.MULTILINE):
            raise ValueError(f"{path.relative_to(ROOT)} has a {name} already")
    return hasattr(tflite.BuiltinOperator, code)


def _with_import(text: str, module: str, *names: str) -> str:
    """``text`` with an import of ``names`` at the place where ruff wants it."""
    lines = text.splitlines(keepends=True)
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    known = next((node for node in imports if node.module == module), None)
    wanted = {*names, *(alias.name for alias in known.names)} if known else set(names)
    statement = _import_statement(module, sorted(wanted, key=_import_order))
    if known:
        lines[known.lineno - 1 : known.end_lineno] = [statement]
        return "".join(lines)
    own = [node for node in imports if (node.module or "").split(".")[0] in ("tests", "tflgpu")]
    later = next((node.lineno - 1 for node in own if (node.module or "") > module), None)
    lines.insert(own[-1].end_lineno or 0 if later is None else later, statement)
    return "".join(lines)


def _import_statement(module: str, names: Sequence[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= LINE:
        return f"{line}\n"
    return "\n".join((f"from {module} import (", *(f"    {name}," for name in names), ")\n"))


def _import_order(name: str) -> tuple[int, str]:
    """Constants, classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _with_row(text: str, function: str, row: str) -> str:
    """``text`` with ``function`` before the tuple ROWS, and ``row`` at its end."""
    (rows,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and getattr(node.targets[0] if isinstance(node, ast.Assign) else node.target, "id", "") == "ROWS"
    )
    assert isinstance(rows.value, ast.Tuple) and rows.end_lineno is not None
    lines = text.splitlines(keepends=True)
    begin = lines[rows.lineno - 1].partition("(")[0]
    if rows.lineno == rows.end_lineno:
        own = [f"    {ast.get_source_segment(text, element)},\n" for element in rows.value.elts]
    else:
        own = lines[rows.lineno : rows.end_lineno - 1]
    before = "".join(lines[: rows.lineno - 1]).rstrip("\n")
    lines[: rows.end_lineno] = [before, "\n\n\n", function, f"{begin}(\n", *own, f"    {row},\n", ")\n"]
    return "".join(lines)


if __name__ == "__main__":
    main()
