"""A plugin of pytest that records which lines of Python, and which templates, each test uses.

``TFLGPU_MUTATE_MAP`` is how the names of its files begin.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from time import process_time
from typing import Any

import coverage
import jinja2
import jinja2.meta
import pytest

from scripts.mutate.mutant import ROOT


class Recorder:
    """Lines and templates that the tests of one process use."""

    def __init__(self, file: Path) -> None:
        self._file, self._test = file, ""
        self._coverage = coverage.Coverage(data_file=None, source=[str(ROOT / "tflgpu")], config_file=False)
        self._templates: dict[str, set[str]] = defaultdict(set)
        self._seconds = dict[str, float]()
        render = jinja2.Template.render

        def recorded(template: jinja2.Template, *values: Any, **named: Any) -> str:
            self._templates[str(template.name)].add(self._test)
            return render(template, *values, **named)

        jinja2.Template.render = recorded  # type: ignore[method-assign, assignment]
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note whose lines are run, and its processor time: the machine may be busy."""
        self._test = item.nodeid
        self._coverage.switch_context(item.nodeid)
        begun = process_time()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = process_time() - begun

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        self._coverage.stop()
        data = self._coverage.get_data()
        numbers = {test: number for number, test in enumerate(self._seconds)}
        lines: dict[str, dict[str, list[int]]] = {}
        for path in data.measured_files():
            contexts = data.contexts_by_lineno(path).items()
            used = {str(line): sorted(numbers[test] for test in tests if test in numbers) for line, tests in contexts}
            lines[str(Path(path).relative_to(ROOT))] = used
        found = {
            "seconds": self._seconds,
            "templates": {n: sorted(map(numbers.__getitem__, t & numbers.keys())) for n, t in self._templates.items()},
            "lines": lines,
        }
        number = len(list(self._file.parent.glob(f"{self._file.name}.*")))
        (self._file.parent / f"{self._file.name}.{number}.{os.getpid()}").write_text(json.dumps(found))


def pytest_configure(config: pytest.Config) -> None:
    """Record this session."""
    config.pluginmanager.register(Recorder(Path(os.environ["TFLGPU_MUTATE_MAP"])))
