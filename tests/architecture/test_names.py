"""Rules that keep the repository easy to enter: few modules at the top, and a name for each thing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import tflgpu

ROOT = Path(__file__).parents[2]
MODULES_AT_THE_TOP = 9  # besides those that have names of LiteRT's

# The same thing for another architecture of devices has the same name there.
ARCHITECTURES = {"cpu", "gpu", "mma", "portable"}


def files(*folders: str) -> Iterator[Path]:
    """Relative to the repository; nothing that programs leave behind."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            if path.is_file() and not any(p == "__pycache__" or p.startswith(".") for p in parts):
                yield path.relative_to(ROOT)


def ambiguous(paths: Iterable[Path]) -> list[str]:
    """Names of files of which there are several, those of different architectures aside."""
    places = {(path.name, "" if path.parent.name in ARCHITECTURES else str(path.parent)) for path in paths}
    return [name for name, count in Counter(name for name, _ in places).items() if count > 1]


def test_the_package_has_few_modules_at_its_top() -> None:
    names = {path.stem for path in (ROOT / "tflgpu").glob("*.py")}
    assert len(names - set(tflgpu.LATE_MODULES)) <= MODULES_AT_THE_TOP


def test_a_name_means_one_module() -> None:
    """Commands are named by their verbs, whatever the modules are named that they call."""
    commands = Path("tflgpu/cli/commands")
    modules = [path for path in files("tflgpu") if path.name != "__init__.py" and path.parent != commands]
    assert ambiguous(path for path in modules if path.suffix == ".py") == []


def test_a_name_means_one_template() -> None:
    assert ambiguous(files("templates")) == []


def test_no_module_of_tests_imports_another() -> None:
    """A helper of several tests is in a module that has no tests."""
    importing = re.compile(r"^\s*(?:from|import) tests\.[\w.]*\btest_\w+", re.MULTILINE)
    assert [str(path) for path in files("tests") if path.suffix == ".py" and importing.search(path.read_text())] == []
