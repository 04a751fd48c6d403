"""An evaluation from its first file to its last, on a terminal: with progress, and resumed after an interrupt."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tflgpu.artifact.cache import content_hash, default_directory
from tflgpu.artifact.cache.directory import make_private
from tflgpu.cli.console import note
from tflgpu.cli.extras import naming_extras
from tflgpu.cli.terminal.progress import progress
from tflgpu.errors import CacheWarning
from tflgpu.evaluate.task import Engines, Row, StateFile, Task, Workplace, in_this_process, key_of


@dataclass(frozen=True)
class Evaluated:
    """A row for each file, in the files' order, and with what they were computed."""

    rows: list[Row]
    engines: Engines


@contextmanager
def evaluated(
    task: Task, files: Sequence[Path], state: Path | None, workers: int = 1, address: str | None = None
) -> Iterator[Evaluated]:
    """Every file through the model. The state file is removed if nothing is raised while this is open.

    state: None for a file in the cache's directory, which belongs to this evaluation by its name; without that
    directory an interrupt loses what was done. workers, address: several processes, or those of a cluster of Ray.
    Raises OSError and ValueError as :class:`tflgpu.evaluate.task.Worker` and :class:`StateFile`, and ValueError
    without a file.
    """
    if not files:
        raise ValueError("no file is left to evaluate")
    with ExitStack() as stack:
        with progress(f"starting {task.model.name}"):
            workplace = stack.enter_context(_workplace(task, workers, address))
        kept = _state_file(state, workplace.engines.identity)
        rows = _rows(task, workplace, files, kept)
    yield Evaluated(rows, workplace.engines)
    if kept is not None:
        kept.remove()


def _workplace(task: Task, workers: int, address: str | None) -> AbstractContextManager[Workplace]:
    """Return this process, unless several workers are asked for, or a cluster of Ray."""
    if workers == 1 and address is None:
        return in_this_process(task)
    with naming_extras():
        from tflgpu.batch.on_ray import on_workers
    return on_workers(task, workers, address)


def _rows(task: Task, workplace: Workplace, files: Sequence[Path], state: StateFile | None) -> list[Row]:
    keys = [key_of(file) for file in files]
    rows = dict(state.rows) if state else {}
    missing = [file for file, key in zip(files, keys, strict=True) if key not in rows]
    done = len(files) - len(missing)
    with progress(f"evaluating {task.model.name}", len(files)) as step:
        for _ in range(done):
            step()
        try:
            for row in workplace.rows(missing):
                rows[row["file"]] = row
                if state is not None:
                    state.append(row)
                done += 1
                step()
        except KeyboardInterrupt:
            advice = f"; the same command goes on from there ({state.path})" if state else ""
            note(f"stopped after {done} of {len(files)} files{advice}")
            raise
    return [rows[key] for key in keys]


def _state_file(path: Path | None, identity: Mapping[str, Any]) -> StateFile | None:
    if path is not None:
        return StateFile(path, identity)
    name = f"{identity['task']}-{content_hash(repr(identity).encode())[:16]}.jsonl"
    try:
        folder = default_directory() / "evaluations"
        make_private(folder)
        try:
            return StateFile(folder / name, identity)
        except ValueError:  # by its name it can only be this evaluation's, so it is damaged
            (folder / name).unlink()
            return StateFile(folder / name, identity)
    except OSError as error:
        warnings.warn(f"an interrupt will lose what is done: {error}", CacheWarning, stacklevel=2)
        return None
