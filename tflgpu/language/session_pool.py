"""Sessions of an engine that are used again, so that answers beside each other never share one."""

from __future__ import annotations

import threading

from tflgpu.language.answer import Answer, Wish
from tflgpu.language.language_engine import Engine
from tflgpu.language.text_session import Session


class SessionPool:
    """Sessions of one engine: as many as there are answers at a time. For any number of threads."""

    def __init__(self, engine: Engine) -> None:
        """Take the engine, which stays the caller's."""
        self._engine = engine
        self._free: list[Session] = []
        self._lock = threading.Lock()

    def answer(self, tokens: list[int], wish: Wish) -> Answer:
        """Answer a text in a session of its own, from an empty cache on: an answer depends on no earlier one.

        The errors are those of :meth:`Session.answer`, except BusyError.

        Args:
            tokens: The whole text.
            wish: The limits of the answer, and how its tokens are chosen.
        """
        with self._lock:
            session = self._free.pop() if self._free else None
        session = session or self._engine.session()
        try:
            session.rewind(0)
            return session.answer(tokens, wish, then=lambda: self._free.append(session))
        except BaseException:
            session.close()
            raise
