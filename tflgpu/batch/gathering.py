"""Rows that are asked for one by one, gathered to calls of several: a call costs the same for one row and for many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Given = TypeVar("Given")
Answer = TypeVar("Answer")

# Calls in flight from which on a call waits until it is full, or another one returns.
CALLS = 2


class Gatherer(Generic[Given, Answer]):
    """Joins what the coroutines of one event loop ask for at about the same time.

    A call begins when it is full. One that is not begins when its first row has waited for ``window`` seconds and few
    other calls are in flight: under load, calls fill up.
    """

    def __init__(
        self, call: Callable[[list[Given]], Awaitable[Sequence[Answer | Exception]]], most: int, window: float
    ) -> None:
        """call: answers rows, in their order; an exception among the answers is raised for its row alone.

        most: rows of a call.
        """
        self._call, self._most, self._window = call, most, window
        self._waiting: list[tuple[Given, asyncio.Future[Answer]]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None  # of the first row that waits, until it has rung

    async def ask(self, row: Given) -> Answer:
        """Return the answer for a row, which is computed together with rows that others ask about.

        Args:
            row: One row, without the first axis.

        Raises:
            Exception: The answer is an error, or the call of the model raises one.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((row, answer))
        if len(self._waiting) == 1:
            self._timer = loop.call_later(self._window, self._ring)
        if len(self._waiting) >= self._most:
            self._begin()
        return await answer

    def _ring(self) -> None:
        self._timer = None
        if len(self._calls) < CALLS:
            self._begin()

    def _begin(self) -> None:
        """Call for all that wait: never more than a call takes."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        # Coroutines that were cancelled need no answer.
        asked = [(row, answer) for row, answer in self._waiting if not answer.done()]
        self._waiting = []
        if asked:
            task = asyncio.create_task(self._answer(asked))
            self._calls.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if self._waiting and not self._timer and len(self._calls) < CALLS:
            self._begin()

    async def _answer(self, asked: list[tuple[Given, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._call([row for row, _ in asked])
        except Exception as error:
            answers = [error] * len(asked)
        for (_, future), answer in zip(asked, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
