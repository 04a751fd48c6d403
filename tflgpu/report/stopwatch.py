"""Wall time by stage."""

from __future__ import annotations

import logging
import time

LOGGER = logging.getLogger(__name__)


class Stopwatch:
    """Seconds by stage, summed over all laps of a stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to a stage.

        Args:
            name: The stage. Laps of the same name add up.
        """
        now = time.perf_counter()
        seconds = now - self._last
        self.laps[name], self._last = self.laps.get(name, 0.0) + seconds, now
        LOGGER.debug("%s took %.1f ms", name, 1e3 * seconds)
