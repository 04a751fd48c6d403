"""A plugin of pytest that records which lines of Python and of templates each test uses.

``TFLGPU_MUTATE_MAP`` is how the names of its files begin.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from pathlib import Path

import coverage
import pytest

from scripts.mutate.mutant import ROOT
from tflgpu.codegen.environment import environment

TRACED = ("tflgpu", "templates")


class Recorder:
    """Lines that the tests of one process use."""

    def __init__(self, file: Path) -> None:
        self._file = file
        folders = [str(ROOT / folder) for folder in TRACED]
        self._coverage = coverage.Coverage(data_file=None, source=folders, config_file=False)
        self._seconds = dict[str, float]()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note whose lines are run, and its processor time: the machine may be busy."""
        self._coverage.switch_context(item.nodeid)
        begun = _processor_time()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = _processor_time() - begun

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        self._coverage.stop()
        data = self._coverage.get_data()
        numbers = {test: number for number, test in enumerate(self._seconds)}
        found: dict[str, dict[int, list[int]]] = {}
        for path in data.measured_files():
            lines: dict[int, set[int]] = {}
            line_of = _line_of(Path(path))
            for line, tests in data.contexts_by_lineno(path).items():
                lines.setdefault(line_of(line), set()).update(numbers[test] for test in tests if test in numbers)
            found[str(Path(path).relative_to(ROOT))] = {line: sorted(tests) for line, tests in lines.items()}
        number = len(list(self._file.parent.glob(f"{self._file.name}.*")))
        part = self._file.parent / f"{self._file.name}.{number}.{os.getpid()}"
        part.write_text(json.dumps({"seconds": self._seconds, "lines": found}))


def _line_of(path: Path) -> Callable[[int], int]:
    """The line of a file for a line that Python has run: of a template, Python runs what Jinja made of it."""
    if path.suffix == ".py":
        return int
    return environment().get_template(str(path.relative_to(ROOT / "templates"))).get_corresponding_lineno


def _processor_time() -> float:
    """Seconds of this process and of those that it has started, compilers above all."""
    return sum(os.times()[:4])


def pytest_configure(config: pytest.Config) -> None:
    """Record this session."""
    config.pluginmanager.register(Recorder(Path(os.environ["TFLGPU_MUTATE_MAP"])))
