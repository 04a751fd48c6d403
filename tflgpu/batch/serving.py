"""A model as a deployment of Ray Serve: replicas with a device each, which compute batches of concurrent requests.

Ray Serve starts and ends replicas by their load, and replaces those that die. What is here says how a replica gets its
device and its model, and joins requests to batches where they are made: of what serving takes beside the model, most is
the calls between processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError

from tflgpu.batch.gathering import Gatherer
from tflgpu.batch.predictor import Predictor, Request
from tflgpu.model.model_source import ModelSource, read_bytes
from tflgpu.options import Options

# Batches that a replica is given at a time: one is computed while others come.
BATCHES_IN_FLIGHT = 3

# How often :func:`ask` asks again. Each time another replica has died.
TRIES = 10

Row = Mapping[str, ArrayLike]
Outputs = dict[str, NDArray[Any]]

# For each event loop and each handle, the gatherer of the rows that the loop asks the handle for.
_gatherers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, Gatherer[Row, Outputs]]] = WeakKeyDictionary()


def deployment(
    model: ModelSource,
    options: Options | None = None,
    *,
    replicas: tuple[int, int] = (1, 1),
    gpus: float = 0,
    window: float = 0.005,
    devices: Sequence[Request] | None = None,
) -> serve.Application:
    """Return an application of Ray Serve that answers rows; ``serve.run`` starts it, :func:`ask` asks it.

    The first replica compiles, and all later ones start from the cache, which machines may share.

    Args:
        model: A path, bytes or a buffer. All replicas get the bytes.
        options: As for :func:`tflgpu.compile`. ``shapes.batch`` is the most rows of a batch, by default 1.
        replicas: The least and the greatest number. Ray adds one where more than a batch waits for each.
        gpus: Of Ray, for each replica. 0 on CPUs, and where ``devices`` shares out GPUs without Ray.
        window: Seconds that a row waits at most for others of its batch.
        devices: What the replicas of a machine share, as of :class:`tflgpu.batch.Predictor`.

    Raises:
        OSError: The file cannot be read.
    """
    options = options or Options()
    batch = options.shapes.batch or 1
    chosen = replace(options, shapes=replace(options.shapes, batch=batch))
    made: Any = serve.deployment(
        Replica,
        name="model",
        max_ongoing_requests=BATCHES_IN_FLIGHT,  # each is a batch
        autoscaling_config={
            "min_replicas": replicas[0],
            "max_replicas": replicas[1],
            "initial_replicas": replicas[0],
            "target_ongoing_requests": 2,
        },
        ray_actor_options={"num_cpus": 0, "num_gpus": gpus},  # the device computes
    )
    application: serve.Application = made.bind(read_bytes(model), chosen, window, devices)
    return application


async def ask(handle: Any, row: Row) -> Outputs:
    """Return the outputs of a row. A row that a replica had when it died is computed by another one.

    Rows that coroutines of one event loop ask for at about the same time are one batch.

    Args:
        handle: What ``serve.run`` returns, or what Ray Serve gives a deployment that has the application as argument.
        row: Inputs by name, without their first axis.

    Raises:
        ValueError: The row does not fit.
        Exception: Whatever else computing it raises.
        RayActorError: Replicas die again and again.
    """
    gatherers = _gatherers.setdefault(asyncio.get_running_loop(), {})
    if handle not in gatherers:
        batch, window = await _of_a_replica(handle.batching)
        gatherers.setdefault(handle, Gatherer(partial(_of_a_replica, handle), batch, window))
    return await gatherers[handle].ask(row)


async def _of_a_replica(handle: Any, *arguments: Any) -> Any:
    """Return what a replica returns, or another one if that one dies."""
    for _ in range(TRIES):
        try:
            return await handle.remote(*arguments)
        except RayActorError as error:
            death = error
        except RayTaskError as error:
            raise error.cause from None  # as the replica raised it
    raise death


class Replica:
    """A model in an actor of Ray Serve, on a device of its own."""

    def __init__(self, model: bytes, options: Options, window: float, devices: Sequence[Request] | None) -> None:
        self._predictor = Predictor(model, options, devices=devices)
        self._batching = options.shapes.batch or 1, window
        infos = self._predictor.model.inputs
        self._shapes = {info.name: (info.shape[1:], np.dtype(info.dtype)) for info in infos}

    async def batching(self) -> tuple[int, float]:
        """Return the most rows of a call, and how many seconds a row may wait for others."""
        return self._batching

    async def __call__(self, rows: list[Row]) -> list[Outputs | ValueError]:
        """Return the outputs of each row, or a ValueError that says why it does not fit, which concerns no other
        row."""
        answers: list[Outputs | ValueError] = []
        fitting: list[dict[str, NDArray[Any]]] = []
        for row in rows:
            try:
                fitting.append(self._fitting(row))
                answers.append({})
            except ValueError as error:
                answers.append(error)
        if fitting:
            columns = {name: np.stack([row[name] for row in fitting]) for name in self._shapes}
            outputs = await asyncio.to_thread(self._predictor, columns)
            places = (answer for answer in answers if isinstance(answer, dict))
            for number, answer in enumerate(places):
                answer.update({name: values[number] for name, values in outputs.items()})
        return answers

    def _fitting(self, row: Row) -> dict[str, NDArray[Any]]:
        fitting: dict[str, NDArray[Any]] = {}
        for name, (shape, dtype) in self._shapes.items():
            if name not in row:
                raise ValueError(f"the row has no input {name!r}; it has {sorted(row)}")
            fitting[name] = value = np.asarray(row[name])
            if value.shape != shape or value.dtype != dtype:
                raise ValueError(
                    f"input {name!r} is {value.dtype} of shape {list(value.shape)}; {dtype} of shape {list(shape)} was "
                    "expected"
                )
        return fitting

    async def check_health(self) -> None:
        """Run the model once: Ray Serve replaces a replica whose device fails, or does not answer."""
        zeros = {name: np.zeros((1, *shape), dtype) for name, (shape, dtype) in self._shapes.items()}
        await asyncio.to_thread(self._predictor, zeros)
