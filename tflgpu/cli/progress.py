"""Progress of long work on a terminal: which step runs and how far it is, unless -q forbids it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.text import Text

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.cli.console import messages, shortened
from tflgpu.model.text import printable
from tflgpu.options import Options

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Seconds until anything is shown: what is done by then would only flicker.
MOMENT = 0.5

# Characters of a bar, and of the title after it.
BAR, TITLE = 12, 36

LOGGER = logging.getLogger("tflgpu")

# A call moves a bar by one.
Step = Callable[[], None]


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Step]:
    """Open a line for one task while this is open; without ``total`` steps its bar only says that it goes on."""
    with display() as shown, shown.task(title, total) as step:
        yield step


def compile_model(model: Path, options: Options) -> CompiledModel:
    """``tflgpu.compile`` with a line for it."""
    with progress(f"compiling {model.name}"):
        return tflgpu.compile(model, options)


@contextmanager
def display() -> Iterator[Display]:
    """Room for lines on stderr, which are gone when this is closed."""
    if not (messages.is_interactive and LOGGER.isEnabledFor(logging.WARNING)):
        yield Display(None)
        return
    lines = _lines()
    timer = threading.Timer(MOMENT, lines.start)
    timer.daemon = True
    timer.start()
    try:
        with _logged(stages := _Stages(lines)):
            yield Display(stages)
    finally:
        timer.cancel()
        timer.join()
        lines.stop()


class Display:
    """One line for each task that is under way. Tasks may be in several threads.

    After a title stands what the library last logged in the thread of the task, such as the stage of a compilation.
    """

    def __init__(self, stages: _Stages | None) -> None:
        self._stages = stages

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Step]:
        """Show a task while the block runs. Gives the function to call after each step."""
        if self._stages is None:
            yield lambda: None
            return
        thread, lines = threading.get_ident(), self._stages.lines
        task = lines.add_task(
            escape(shortened(Text(printable(title)), TITLE).plain), total=total, count=_count(0, total), stage=""
        )
        outer = self._stages.tasks.get(thread)
        self._stages.tasks[thread] = task
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            lines.update(task, completed=done, count=_count(done, total))

        try:
            yield step
        finally:
            lines.remove_task(task)
            if outer is None:
                del self._stages.tasks[thread]
            else:
                self._stages.tasks[thread] = outer


def _count(done: int, total: int | None) -> str:
    return "" if total is None else f"{done}/{total}"


def _lines() -> Progress:
    from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn  # they take 20 ms
    from rich.table import Column

    class Title(TextColumn):
        """The only column that a narrow terminal shortens."""

        def render(self, task: Task) -> Text:
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    columns = (
        BarColumn(BAR, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(Column(no_wrap=True)),
        Title("{task.description}[dim]{task.fields[stage]}", table_column=Column()),
    )
    return Progress(*columns, console=messages, transient=True, redirect_stdout=False)


class _Stages(logging.Handler):
    """Puts what is logged after the title of its thread's task."""

    def __init__(self, lines: Progress) -> None:
        super().__init__(logging.INFO)
        self.lines = lines
        self.tasks: dict[int | None, TaskID] = {}

    def emit(self, record: logging.LogRecord) -> None:
        task = self.tasks.get(record.thread)
        if task is not None:
            self.lines.update(task, stage=escape(printable(f": {record.getMessage()}")))


@contextmanager
def _logged(handler: logging.Handler) -> Iterator[None]:
    """Let the library's log also go to ``handler``."""
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(min(LOGGER.getEffectiveLevel(), handler.level))
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
