"""Which tests may see a mutant: those that were recorded on its line, then those of its package."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

from scripts.mutate.mutant import ROOT, Mutant
from tflgpu.codegen.environment import environment

# Folders of tests by how the names of files begin.
FOLDERS = {
    "tflgpu/passes": ("tests/graph", "tests/kernels"),
    "tflgpu/codegen": ("tests/kernels/test_shared_functions.py", "tests/runtime/claiming", "tests/runtime/persistent"),
    "tflgpu/graph": ("tests/graph",),
    "tflgpu/target": ("tests/kernels", "tests/plan"),
    "templates/executor": ("tests/schedules", "tests/runtime/claiming", "tests/runtime/persistent"),
    "templates/ptx": ("tests/schedules", "tests/kernels/test_emulated_kernels.py", "tests/kernels/mma"),
    "templates/mma": ("tests/kernels/test_emulated_kernels.py", "tests/kernels/mma"),
    "templates/access": ("tests/ops/test_ops.py", "tests/kernels"),
    "templates": ("tests/kernels", "tests/ops/test_ops.py"),
    "tflgpu/ops": ("tests/ops",),
}


class Map:
    """Read the record that :mod:`scripts.mutate.recorder` has written for some tests."""

    def __init__(self, file: Path) -> None:
        self._seconds: dict[str, float] = {}
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for part in sorted(file.parent.glob(f"{file.name}.*")):
            found = json.loads(part.read_text())
            self._seconds |= found["seconds"]
            names = [*found["seconds"]]
            for path, lines in found["lines"].items():
                for line, tests in lines.items():
                    self._lines[path][int(line)].update(map(names.__getitem__, tests))

    def tests_of(self, mutant: Mutant, source: str, seconds: float) -> list[str]:
        """Recorded tests that take so many seconds together: those of modules that name the mutant's, and the fastest
        ones first, and few cases of each.
        """
        lines, near = self._lines[mutant.file], {*modules_that_name(mutant)}
        whole = mutant.file.endswith(".py") and _statement(source, mutant.line(source))
        if whole:
            used = set[str]().union(*(lines[line] for line in whole))
        elif whole is None:  # run by the import, whichever test that was; others may read what it made
            used = set[str]().union(*lines.values(), (test for test in self._seconds if _module(test) in near))
        else:
            used = lines[_text_begin(mutant.file.removeprefix("templates/"), mutant.line(source))]
        costs, cases = list[tuple[float, str]](), Counter[str]()
        for test in sorted(used, key=lambda test: self._seconds.get(test, 0.0)):
            cases[test.partition("[")[0]] += 1
            cost = self._seconds.get(test, 0.0) * cases[test.partition("[")[0]]
            costs.append((cost / 10 if _module(test) in near else cost, test))
        chosen = list[str]()
        for _, test in sorted(costs):
            seconds -= self._seconds.get(test, 0.0)
            if seconds < 0 and chosen:
                break
            chosen.append(test)
        return chosen


def _text_begin(template: str, line: int) -> int:
    """The line of a template by which Jinja knows one: that where its piece of text begins."""
    known = (begin for begin, _ in environment().get_template(template).debug_info)
    return max((begin for begin in known if begin <= line), default=0)


def _module(test: str) -> str:
    return test.partition("::")[0]


def _statement(source: str, line: int) -> range | None:
    """The lines of the smallest statement around one; of a compound statement its head. None outside of functions."""
    found: range | None = None
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and function.body[0].lineno <= line <= (function.end_lineno or 0):
            for node in ast.walk(function):
                if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
                    body = getattr(node, "body", None)
                    lines = range(node.lineno, (body[0].lineno if body else (node.end_lineno or 0) + 1))
                    if line in lines:
                        found = lines
    return found


def modules_that_name(mutant: Mutant) -> list[str]:
    """Modules of tests that have its name or name it, those that do so most often first."""
    stem = Path(mutant.file).name.split(".")[0]
    kernel = "_".join(Path(mutant.file).with_name(stem).parts[1:])  # as generated functions are named
    word = re.compile(rf"\b{re.escape(stem)}\b|\b{kernel}")
    own = f"test_{stem.removesuffix('_kernels')}"
    found = list[tuple[bool, int, str]]()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        times = len(word.findall(path.read_text()))
        if times or path.name.startswith(own):
            found.append((not path.name.startswith(own), -times, str(path.relative_to(ROOT))))
    return [name for *_, name in sorted(found)]


def tests_by_name(mutant: Mutant) -> list[str]:
    """Modules of tests that name it, then its package's folder."""
    folders = next((own for begin, own in FOLDERS.items() if mutant.file.startswith(begin)), None)
    if folders is None:
        own = Path("tests", *Path(mutant.file).parts[1:-1])
        while not (ROOT / own).is_dir():
            own = own.parent
        folders = (str(own),) if own != Path("tests") else ()
    return list(dict.fromkeys((*modules_that_name(mutant), *folders)))
