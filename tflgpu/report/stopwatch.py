"""Wall time by stage."""

from __future__ import annotations

import time


class Stopwatch:
    """Seconds by stage; a stage that comes again adds up."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = self.laps.get(name, 0.0) + now - self._last, now
