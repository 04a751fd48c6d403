"""Sessions of a server: each request has one, which has read as much of its text as any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tflgpu.language import BusyError, Engine, Session


class Sessions:
    """A number of sessions of one engine. Requests wait for a free one in their order. For one event loop."""

    def __init__(self, engine: Engine, count: int) -> None:
        """Make room for ``count`` sessions, which are made when they are needed."""
        self._engine, self._count = engine, count
        self._free: list[Session] = []
        self._made = 0
        self._places = asyncio.Semaphore(count)

    @property
    def busy(self) -> int:
        """How many sessions answer."""
        return self._made - len(self._free)

    @asynccontextmanager
    async def one(self, tokens: Sequence[int]) -> AsyncIterator[Session]:
        """Lend a session, and take it back after the block. Waits until one is free.

        Args:
            tokens: Those that will be read: the session that knows most of their beginning is chosen.
        """
        async with self._places:
            best = max(self._free, key=lambda session: _equal(session.tokens, tokens), default=None)
            # A session that has read nothing of this text is kept for the text that it has.
            if best is not None and (self._made == self._count or _equal(best.tokens, tokens) > _FEW):
                self._free.remove(best)
                session = best
            else:
                self._made += 1
                session = await asyncio.to_thread(self._engine.session)
            try:
                await _until_free(session)
                yield session
            finally:
                self._free.append(session)


# Tokens that begin every text, such as the start token, tell nothing of a text.
_FEW = 8


def _equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many first tokens of two texts are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


async def _until_free(session: Session) -> None:
    """Wait until the token is computed that was under way when the last answer was left."""
    while True:
        try:
            session.rewind(len(session.tokens))
            return
        except BusyError:
            await asyncio.sleep(0.001)
