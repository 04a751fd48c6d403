"""Chooses the next token by the scores that a model gives to all tokens."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import DeviceError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen. By default it is the one with the largest score (greedy).

    Attributes:
        temperature: Scores are divided by it before they become probabilities. 0 is greedy.
        top_k: Only this many tokens with the largest scores may be chosen.
        seed: Of the random numbers; None gives others each time.
    """

    temperature: float = 0.0
    top_k: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check every field. Raises ValueError."""
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; 0 or more was expected")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; 1 or more was expected")
        if self.temperature == 0 and (self.top_k is not None or self.seed is not None):
            raise ValueError("top_k and seed need a temperature above 0: without one no token is drawn")


class Sampler:
    """Chooses tokens one after another."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._draw = np.random.default_rng(sampling.seed)

    def choose(self, scores: NDArray[Any]) -> int:
        """A token by the scores of all. Raises DeviceError for scores that are no numbers."""
        scores = scores.astype(np.float64).ravel()
        if np.isnan(scores).any():
            raise DeviceError("the model's scores are no numbers; precision fp32 may help")
        best = int(scores.argmax())
        if self._sampling.temperature == 0:
            return best
        k = min(self._sampling.top_k or len(scores), len(scores))
        candidates = np.argpartition(scores, -k)[-k:]
        parts = np.exp((scores[candidates] - scores[best]) / self._sampling.temperature)
        return int(self._draw.choice(candidates, p=parts / parts.sum()))
