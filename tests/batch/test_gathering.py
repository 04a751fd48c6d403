"""Rows that coroutines ask for at about the same time are one call, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from tflgpu.batch.gathering import CALLS, Gatherer

SOON, LONG = 0.01, 60.0  # seconds


class Calls:
    """Doubles rows; keeps those of each call, and holds calls back until it may go on."""

    def __init__(self, held: bool = False) -> None:
        self.rows: list[list[int]] = []
        self.go_on = asyncio.Event()
        if not held:
            self.go_on.set()

    async def __call__(self, rows: list[int]) -> Sequence[int | Exception]:
        self.rows.append(rows)
        await self.go_on.wait()
        if 13 in rows:
            raise KeyError("the call fails")
        return [ValueError(f"{row} does not fit") if row < 0 else 2 * row for row in rows]


def run(session: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(session, 30))  # type: ignore[arg-type]


def test_a_full_call_does_not_wait() -> None:
    async def session() -> None:
        calls = Calls()
        gatherer: Gatherer[int, int] = Gatherer(calls, 4, LONG)
        assert await asyncio.gather(*(gatherer.ask(row) for row in range(8))) == [2 * row for row in range(8)]
        assert calls.rows == [[0, 1, 2, 3], [4, 5, 6, 7]]

    run(session())


def test_a_row_waits_for_others_for_a_while_only() -> None:
    async def session() -> None:
        calls = Calls()
        gatherer: Gatherer[int, int] = Gatherer(calls, 4, SOON)
        assert await asyncio.gather(gatherer.ask(1), gatherer.ask(2)) == [2, 4]
        assert await gatherer.ask(3) == 6
        assert calls.rows == [[1, 2], [3]]

    run(session())


def test_calls_fill_up_while_others_are_in_flight() -> None:
    async def session() -> None:
        calls = Calls(held=True)
        gatherer: Gatherer[int, int] = Gatherer(calls, 4, SOON)
        asked = []
        for row in range(CALLS + 3):
            asked.append(asyncio.create_task(gatherer.ask(row)))
            await asyncio.sleep(3 * SOON)
        assert calls.rows == [[row] for row in range(CALLS)]
        calls.go_on.set()
        assert await asyncio.gather(*asked) == [2 * row for row in range(CALLS + 3)]
        assert calls.rows[CALLS:] == [[CALLS, CALLS + 1, CALLS + 2]]

    run(session())


def test_an_error_concerns_its_row_or_its_call() -> None:
    async def session() -> None:
        gatherer: Gatherer[int, int] = Gatherer(Calls(), 2, SOON)
        found = await asyncio.gather(*(gatherer.ask(row) for row in (1, -1, 13, 2, 3)), return_exceptions=True)
        assert [found[0], found[4]] == [2, 6]
        assert [type(each) for each in found[1:4]] == [ValueError, KeyError, KeyError]

    run(session())


def test_a_row_that_is_given_up_is_not_computed() -> None:
    async def session() -> None:
        calls = Calls()
        gatherer: Gatherer[int, int] = Gatherer(calls, 4, SOON)
        given_up, kept = (asyncio.create_task(gatherer.ask(row)) for row in (1, 2))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await kept == 4
        assert calls.rows == [[2]]
        with pytest.raises(asyncio.CancelledError):
            await given_up

    run(session())
