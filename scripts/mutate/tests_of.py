"""Which tests may see a mutant: those that were recorded on its line, then those of its package."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import jinja2
import jinja2.meta

from scripts.mutate.mutant import ROOT, Mutant

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
        self._templates: dict[str, set[str]] = defaultdict(set)
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for part in sorted(file.parent.glob(f"{file.name}.*")):
            found = json.loads(part.read_text())
            self._seconds |= found["seconds"]
            names = [*found["seconds"]]
            for name, tests in found["templates"].items():
                for each in _with_referenced(name):
                    self._templates[each].update(map(names.__getitem__, tests))
            for path, lines in found["lines"].items():
                for line, tests in lines.items():
                    self._lines[path][int(line)].update(map(names.__getitem__, tests))

    def tests_of(self, mutant: Mutant, source: str, seconds: float) -> list[str]:
        """Recorded tests that take so many seconds together, the fastest ones first."""
        if mutant.file.startswith("templates/"):
            used = self._templates[mutant.file.removeprefix("templates/")]
        else:
            lines = self._lines[mutant.file]
            used = lines[mutant.line(source)] or set[str]().union(*lines.values())
        chosen = list[str]()
        for test in sorted(used, key=lambda test: self._seconds.get(test, 0)):
            seconds -= self._seconds.get(test, 0)
            if seconds < 0 and chosen:
                break
            chosen.append(test)
        return chosen


@cache
def _with_referenced(template: str) -> tuple[str, ...]:
    """A template, and all that it extends, includes or imports."""
    path = ROOT / "templates" / template
    if not path.is_file():
        return (template,)
    tree = jinja2.Environment().parse(path.read_text())
    referenced = jinja2.meta.find_referenced_templates(tree)
    return (template, *(each for name in referenced if name for each in _with_referenced(name)))


def tests_by_name(mutant: Mutant) -> list[str]:
    """Modules of tests that have its name or name it, those that do so most often first, then its package's folder."""
    path = Path(mutant.file)
    stem = path.name.split(".")[0]
    called = mutant.file.removesuffix(".py").replace("/", ".") if path.suffix == ".py" else stem
    kernel = "_".join(Path(mutant.file).with_name(stem).parts[1:])  # as generated functions are named
    word = re.compile(rf"\b{re.escape(called)}\b|import .*\b{re.escape(stem)}\b|\b{kernel}")
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    named = {str(each.relative_to(ROOT)): len(word.findall(each.read_text())) for each in modules}
    for name in named:
        named[name] += 1000 * Path(name).name.startswith(f"test_{stem.removesuffix('_kernels')}")
    found = sorted((name for name, times in named.items() if times), key=lambda name: -named[name])
    folders = next((own for begin, own in FOLDERS.items() if mutant.file.startswith(begin)), None)
    if folders is None:
        own = Path("tests", *path.parts[1:-1])
        while not (ROOT / own).is_dir():
            own = own.parent
        folders = (str(own),) if own != Path("tests") else ()
    return list(dict.fromkeys((*found, *folders)))
