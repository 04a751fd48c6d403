"""Chooses the next token by the scores that a model gives to all tokens."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
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
        seed: Of the random numbers, one for each token of an answer; None gives others each time. They do not depend
            on the device.
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

    def candidates(self, vocabulary: int) -> int | None:
        """How many tokens with the largest scores may be chosen; None for all of them."""
        return None if self.top_k is None or self.top_k >= vocabulary else self.top_k


class Sampler:
    """Chooses tokens, each by a random number of its own place in the answer.

    Attributes:
        sampling: How.
    """

    def __init__(self, sampling: Sampling) -> None:
        """Take a description.

        Args:
            sampling: How tokens are chosen.
        """
        self.sampling = sampling
        self._key = np.random.SeedSequence(sampling.seed).generate_state(2, np.uint64)

    def draw(self, place: int) -> float:
        """Return the random number of a place.

        Args:
            place: In the answer, from 0 on.

        Returns:
            A number from 0 on, below 1, that is a multiple of 2^-23, so that float holds it.
        """
        numbers = np.random.Philox(key=self._key, counter=place)
        return (int(numbers.random_raw()) >> 41) * 2.0**-23

    def choose(self, scores: NDArray[Any], place: int) -> int:
        """Choose the token of a place.

        Candidates are in the order of their scores, equal ones in that of tokens, or all in that of tokens. The first
        one is chosen up to which the probabilities add up to more than the random number.

        Args:
            scores: Of all tokens.
            place: In the answer, from 0 on.

        Returns:
            The token.

        Raises:
            DeviceError: Scores are no numbers.
        """
        scores = scores.astype(np.float64).ravel()
        check_scores(float(scores.sum()))
        if self.sampling.temperature == 0:
            return int(scores.argmax())
        candidates = np.arange(len(scores))
        if (k := self.sampling.candidates(len(scores))) is not None:
            candidates = np.argsort(-scores, kind="stable")[:k]
        sums = np.exp((scores[candidates] - scores.max()) / self.sampling.temperature).cumsum()
        return int(candidates[np.searchsorted(sums, sums[-1] * self.draw(place), side="right")])


def check_scores(total: float) -> None:
    """Raise DeviceError if scores are no numbers, by their sum."""
    if not total < inf:
        raise DeviceError("the model's scores are no numbers; precision fp32 may help")
