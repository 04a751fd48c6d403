"""Micro-batching: concurrent requests of the same few milliseconds run as one batch. `service.py` uses it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray

import tflgpu


class MicroBatcher:
    """Collects inputs until a batch is full, or the first has waited for `window` seconds, and runs them as one.

    model: planned for whole batches, `Options(shapes=Shapes(batch=16))`, with one input and one output. `serve` has
    to be running.
    """

    def __init__(self, model: tflgpu.CompiledModel, window: float = 0.005) -> None:
        self.model, self.window = model, window
        self.batch = model.pinned_array(model.inputs[0].name)
        self.waiting: asyncio.Queue[tuple[NDArray[Any], asyncio.Future[NDArray[Any]]]] = asyncio.Queue()
        self.thread = ThreadPoolExecutor(1)  # the model runs here, while the event loop takes further requests

    async def run(self, item: NDArray[Any]) -> NDArray[Any]:
        """One input without its batch axis -> its part of the output."""
        answer: asyncio.Future[NDArray[Any]] = asyncio.get_running_loop().create_future()
        await self.waiting.put((item, answer))
        return await answer

    async def serve(self) -> None:
        """Run batches until this is cancelled."""
        while True:
            items, answers = zip(*await self.next_requests(), strict=True)
            try:
                rows = await asyncio.get_running_loop().run_in_executor(self.thread, self.run_batch, items)
            except Exception as error:  # it belongs to these requests; the next batch may be fine
                for answer in answers:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for answer, row in zip(answers, rows, strict=False):  # rows that no request filled are left over
                    if not answer.done():  # a client that went away has cancelled its request
                        answer.set_result(row)

    async def next_requests(self) -> list[tuple[NDArray[Any], asyncio.Future[NDArray[Any]]]]:
        requests = [await self.waiting.get()]
        deadline = asyncio.get_running_loop().time() + self.window
        while len(requests) < len(self.batch):
            try:
                async with asyncio.timeout_at(deadline):
                    requests.append(await self.waiting.get())
            except TimeoutError:
                break
        return requests

    def run_batch(self, items: tuple[NDArray[Any], ...]) -> NDArray[Any]:
        for number, item in enumerate(items):
            self.batch[number] = item
        (rows,) = self.model.run(self.batch).values()
        return rows
