"""An evaluation from its first file to its last, on a terminal: with progress, and resumed after an interrupt."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tflgpu.api import CompiledModel
from tflgpu.artifact.cache import content_hash, default_directory
from tflgpu.artifact.cache.directory import make_private
from tflgpu.cli.console import note
from tflgpu.cli.terminal.progress import progress
from tflgpu.errors import CacheWarning
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.evaluate.state_file import StateFile
from tflgpu.evaluate.task import Row, Task, Worker, key_of


@dataclass(frozen=True)
class Evaluated:
    """A row for each file, in the files' order, and with what they were computed."""

    rows: list[Row]
    model: CompiledModel
    reference: LiteRT | None


@contextmanager
def evaluated(task: Task, files: Sequence[Path], state: Path | None) -> Iterator[Evaluated]:
    """Every file through the model. The state file is removed if nothing is raised while this is open.

    state: None for a file in the cache's directory, which belongs to this evaluation by its name; without that
    directory an interrupt loses what was done. Raises OSError and ValueError as :class:`Worker` and :class:`StateFile`.
    """
    with progress(f"starting {task.model.name}"):
        worker = Worker(task)
    with worker.model:
        kept = _state_file(state, worker.identity)
        yield Evaluated(_rows(worker, files, kept), worker.model, worker.reference)
    if kept is not None:
        kept.remove()


def _rows(worker: Worker, files: Sequence[Path], state: StateFile | None) -> list[Row]:
    rows: list[Row] = []
    with progress(f"evaluating {worker.task.model.name}", len(files)) as step:
        try:
            for file in files:
                row = state.rows.get(key_of(file)) if state else None
                if row is None:
                    row = worker(file)
                    if state is not None:
                        state.append(row)
                rows.append(row)
                step()
        except KeyboardInterrupt:
            advice = f"; the same command goes on from there ({state.path})" if state else ""
            note(f"stopped after {len(rows)} of {len(files)} files{advice}")
            raise
    return rows


def _state_file(path: Path | None, identity: Mapping[str, Any]) -> StateFile | None:
    if path is not None:
        return StateFile(path, identity)
    name = f"{identity['task']}-{content_hash(repr(identity).encode())[:16]}.jsonl"
    try:
        folder = default_directory() / "evaluations"
        make_private(folder)
        return StateFile(folder / name, identity)
    except (OSError, ValueError) as error:
        warnings.warn(f"an interrupt will lose what is done: {error}", CacheWarning, stacklevel=2)
        return None
