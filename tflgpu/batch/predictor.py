"""A model as a function from columns to columns, and the device that it takes among those of one machine."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from tflgpu.api import compile
from tflgpu.artifact.cache.directory import check_own_folder, make_private
from tflgpu.model.model_source import ModelSource
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Options, check_options
from tflgpu.runtime.opencl.devices import VARIABLE, Device, choose, devices


def node_lock(name: str) -> FileLock:
    """Return a lock of this user on this machine, not acquired; a context manager.

    Its file lies in the system's temporary folder and not in the cache, which other machines may share.

    Args:
        name: All processes that use the same name exclude each other.

    Raises:
        OSError: There is no such folder of this user's own.
    """
    user = os.getuid() if hasattr(os, "getuid") else "locks"  # Windows has a temporary folder for each user
    folder = Path(tempfile.gettempdir()) / f"tflgpu-{user}"
    make_private(folder)
    check_own_folder(folder)
    return FileLock(folder / f"{name}.lock", thread_local=False)


Request = str | int  # as Options.device has it


def own_device(options: Options, shared: Sequence[Request] | None) -> tuple[Options, FileLock | None]:
    """Return the options with this predictor's device, and the lock that keeps the device.

    Args:
        options: Their device is replaced.
        shared: Devices of which each process takes one; None for the GPU that Ray assigned, if any.

    Returns:
        The options, and a lock that is held; None if no device is shared.

    Raises:
        ValueError: The list is empty.
        DeviceError: A device is not there.
        OSError: There is no place for locks.
    """
    if shared is not None:
        if not shared:
            raise ValueError("devices is empty; name one device or more")
        device, lock = _lease([choose(request) for request in shared])
        return replace(options, device=device.index), lock
    if options.device == "auto" and VARIABLE not in os.environ and (assigned := _gpus_of_the_actor()):
        gpu = _assigned_gpu(assigned)
        return (replace(options, device=gpu.index) if gpu else options), None
    return options, None


def _lease(offered: Sequence[Device]) -> tuple[Device, FileLock]:
    """Return the first device that the fewest predictors have, and the lock that says so."""
    for tenant in count():
        for device in offered:
            lock = node_lock(f"device-{device.index}-{tenant}")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            return device, lock
    raise AssertionError("the search for a device ended without one")


def _gpus_of_the_actor() -> list[str]:
    """Return the ids of the GPUs that Ray gave the actor in which this runs; none elsewhere."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return []
    return [str(number) for number in ray.get_gpu_ids()]


def _assigned_gpu(ids: Sequence[str]) -> Device | None:
    """Return the OpenCL device for Ray's ids. Ray hides all others by the variable that CUDA and ROCm know.

    Where a driver shows them to OpenCL nevertheless, the id is the position; the order of devices is the same in all
    processes, so that no two actors meet.
    """
    gpus = [device for device in devices() if device.type == "gpu"]
    if len(gpus) > len(ids) and ids[0].isdecimal() and int(ids[0]) < len(gpus):
        return gpus[int(ids[0])]
    return gpus[0] if gpus else None


# Arrays by name, all with the same first axis: the rows.
Columns = Mapping[str, NDArray[Any]]


class Predictor:
    """Runs a model on the rows of columns; Ray Data's ``map_batches`` takes the class as it is.

        dataset.map_batches(
            Predictor, fn_constructor_args=("model.tflite", Options(shapes=Shapes(batch=64))), batch_size=64,
            num_gpus=1, compute=ActorPoolStrategy(size=2, max_tasks_in_flight_per_actor=8),
        )

    A row is what one inference takes, without the first axis: ``[height, width, channels]`` of an image. Columns that
    are no inputs pass through; the inputs themselves are dropped, the outputs added under their names.

    Every row is computed by the same program, compiled for ``Options.shapes.batch`` rows, or for the number that the
    file declares. Rows that are left over are filled up with copies of the last one, whose results are dropped. So a
    result does not depend on which rows came with it. If the file leaves the number of rows open and the options do not
    say it, it is that of the largest batch so far. The model's state is reset before each inference.

    model: the :class:`tflgpu.CompiledModel` that runs. columns: the name of each input's column.
    """

    def __init__(
        self,
        model: ModelSource,
        options: Options | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        devices: Sequence[Request] | None = None,
    ) -> None:
        """columns: names of columns by names of inputs, where they differ.

        devices: what the predictors of this machine share, as ``Options.device`` names each: every predictor takes one
        that the fewest others have. Without it, an actor of Ray takes the GPU that Ray gave it, unless
        ``Options.device`` says another; anything else takes ``Options.device``.

        Raises what :func:`tflgpu.compile` raises, and ValueError if inputs and outputs have no rows in common or
        ``columns`` names an input that the model does not have.
        """
        device, self._lease = own_device(check_options(options), devices)
        with _first_compilation(device):
            self.model = compile(model, device)
        infos = self.model.inputs
        self.columns = {info.name: info.name for info in infos} | dict(columns or {})
        if len(self.columns) != len(infos):
            unknown = sorted(set(self.columns) - {info.name for info in infos})
            raise ValueError(f"columns names {unknown}; the model has the inputs {[info.name for info in infos]}")
        self._rows = _rows_of_an_inference(infos, self.model.outputs)
        self._grows = device.shapes.batch is None and all(0 in info.free_axes for info in infos)
        self._lock = threading.Lock()  # the state of one inference must not meet another's

    def __call__(self, batch: Columns) -> dict[str, NDArray[Any]]:
        """Return the outputs for each row, and the columns that are no inputs.

        A column may hold its rows as objects, and rows of several axes may be flat, as Parquet has them. Raises
        ValueError for columns that are missing or do not fit.
        """
        given = {info.name: self._column(info, batch) for info in self.model.inputs}
        counts = {name: len(rows) for name, rows in given.items()}
        count = max(counts.values())
        if len(set(counts.values())) > 1:
            raise ValueError(f"the columns have different numbers of rows: {counts}")
        kept = {name: column for name, column in batch.items() if name not in self.columns.values()}
        if twice := [info.name for info in self.model.outputs if info.name in kept]:
            raise ValueError(f"columns {twice} have the names of outputs; drop or rename them")
        return kept | self._outputs(given, count)

    def _outputs(self, given: Columns, count: int) -> dict[str, NDArray[Any]]:
        with self._lock:
            is_larger = self._grows and count > self._rows
            if is_larger:
                self._rows = count
            results = list(self._inferences(given, count, is_larger))
        if not results:
            return {info.name: np.empty((0, *info.shape[1:]), info.dtype) for info in self.model.outputs}
        if len(results) == 1:
            return results[0]
        return {name: np.concatenate([result[name] for result in results]) for name in results[0]}

    def _inferences(self, given: Columns, count: int, is_larger: bool) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield outputs. is_larger: whether these are more rows than ever: then ``run`` would not compile at once."""
        for start in range(0, count, self._rows):
            inputs = {name: _filled(rows[start : start + self._rows], self._rows) for name, rows in given.items()}
            self.model.reset_state()
            outputs = self.model.enqueue(inputs).wait() if is_larger else self.model.run(inputs)
            for name, output in outputs.items():
                if output.shape[:1] != (self._rows,):
                    raise ValueError(f"output {name!r} has shape {list(output.shape)}, which is not {self._rows} rows")
            yield {name: output[: count - start] for name, output in outputs.items()}

    def _column(self, info: TensorInfo, batch: Columns) -> NDArray[Any]:
        """Return the rows of an input. Raises ValueError, which names the column."""
        name = self.columns[info.name]
        if name not in batch:
            raise ValueError(f"there is no column {name!r} for input {info.name!r}; there are {sorted(batch)}")
        column = np.asarray(batch[name])
        if column.dtype == object:
            try:
                column = np.stack([np.asarray(row) for row in column]) if len(column) else np.empty((0, 0))
            except ValueError as error:
                raise ValueError(f"the rows of column {name!r} differ in shape: {error}") from error
        row = info.shape[1:]
        if column.shape[1:] == (prod(row),) or len(column) == 0:
            column = column.reshape(len(column), *row)
        if column.ndim != len(info.shape):
            raise ValueError(
                f"the rows of column {name!r} have shape {list(column.shape[1:])}; {list(row)} was expected"
            )
        return column


def _first_compilation(options: Options) -> AbstractContextManager[Any]:
    """While one process compiles for a kind of device, others wait, so that they find the result in the cache."""
    if options.cache == "readwrite":
        with suppress(OSError):  # each of them compiles then
            return node_lock("compilation")
    return nullcontext()


def _rows_of_an_inference(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> int:
    """Return the first axis that all inputs and outputs share. Raises ValueError if there is none."""
    sizes = {info.name: info.shape[:1] for info in (*inputs, *outputs)}
    if len(set(sizes.values())) != 1 or () in sizes.values():
        shapes = ", ".join(f"{info.name!r} {list(info.shape)}" for info in (*inputs, *outputs))
        raise ValueError(f"inputs and outputs have no first axis of rows in common: {shapes}")
    return next(iter(sizes.values()))[0]


def _filled(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """``count`` rows: these and copies of the last one."""
    missing = count - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]) if missing else rows
