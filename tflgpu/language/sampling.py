"""Chooses the next token by the scores that a model gives to all tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import DeviceError, ModelError
from tflgpu.language.language_metadata import FileSampler


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen. By default it is the one with the largest score (greedy).

    Penalties and biases change the scores, of which a temperature makes probabilities. Of the tokens, sorted by their
    scores, those that ``top_k``, ``top_p`` and ``min_p`` leave may be drawn, in this order.

    Attributes:
        temperature: Scores are divided by it before they become probabilities. 0 is greedy.
        top_k: Only this many tokens with the largest scores may be chosen.
        top_p: Only the fewest likeliest tokens may be chosen whose probabilities add up to this.
        min_p: Only tokens may be chosen whose probability is at least this part of the likeliest one's.
        seed: Of the random numbers, one for each token of an answer; None gives others each time. They do not depend
            on the device.
        repetition_penalty: Positive scores of tokens that the answer has are divided by it, negative ones multiplied.
        presence_penalty: It is subtracted from the scores of tokens that the answer has.
        frequency_penalty: It is subtracted from the score of a token as often as the answer has it.
        penalty_window: How many of the last tokens of the answer the penalties look at; 0 for all.
        bias: What is added to the scores of tokens; minus infinity forbids one.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 0
    bias: Mapping[int, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check every field. Raises ValueError."""
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; 0 or more was expected")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; 1 or more was expected")
        for name in ("top_p", "min_p"):
            if (part := getattr(self, name)) is not None and not 0 <= part <= 1:
                raise ValueError(f"{name} is {part}; 0 to 1 was expected")
        if self.temperature == 0 and (self.top_k, self.top_p, self.min_p, self.seed) != (None,) * 4:
            raise ValueError("top_k, top_p, min_p and seed need a temperature above 0: without one no token is drawn")
        if not (isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise ValueError(f"repetition_penalty is {self.repetition_penalty}; a number above 0 was expected")
        for name in ("presence_penalty", "frequency_penalty"):
            if not isfinite(penalty := getattr(self, name)):
                raise ValueError(f"{name} is {penalty}; a number was expected")
        if self.penalty_window < 0:
            raise ValueError(f"penalty_window is {self.penalty_window}; 0 or more was expected")
        for token, bias in self.bias.items():
            if token < 0 or isnan(bias) or bias == inf:
                raise ValueError(f"bias has {bias} for token {token}; a number, or minus infinity, was expected")

    @property
    def has_penalties(self) -> bool:
        """Whether a choice depends on the tokens before it, beside their scores."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)

    def candidates(self, vocabulary: int) -> int | None:
        """Return the number of tokens with the largest scores that may be chosen; None for all tokens.

        Args:
            vocabulary: Number of tokens.
        """
        return None if self.top_k is None or self.top_k >= vocabulary else self.top_k


def sampling_of(file: FileSampler | None) -> Sampling:
    """Return how a file asks for tokens to be chosen.

    Args:
        file: The file's parameters; None and those of no type are greedy.

    Raises:
        ModelError: The parameters have no type, or are not allowed.
    """
    if file is None or file.type == "greedy":
        return Sampling()
    if file.type == "unspecified":
        if (file.k, file.p, file.temperature) == (0, 0, 0):
            return Sampling()
        raise ModelError("the file has parameters of a sampler without its type; give a Sampling of your own")
    if file.temperature == 0:
        return Sampling()
    try:
        return Sampling(
            temperature=file.temperature,
            top_k=None if file.k == 0 else file.k,
            top_p=file.p if file.type == "top p" else None,
            seed=file.seed,
        )
    except ValueError as error:
        raise ModelError(f"the file's sampler is not valid: {error}; give a Sampling of your own") from error


class Constraint(Protocol):
    """Protocol of what an answer has to be, such as JSON."""

    @property
    def is_over(self) -> bool:
        """Whether nothing may follow."""

    def allowed(self) -> NDArray[np.bool_]:
        """Return whether each token may be the next one."""

    def take(self, token: int) -> None:
        """Note the token that was chosen.

        Args:
            token: One that the constraint allowed.
        """


@dataclass(frozen=True)
class TokenLikelihood:
    """Likelihood of a token that was chosen, by the model's own scores: without temperature, penalties and biases.

    Attributes:
        token: The chosen one.
        log_probability: The natural logarithm of its probability.
        likeliest: The likeliest tokens with theirs, the likeliest first.
    """

    token: int
    log_probability: float
    likeliest: tuple[tuple[int, float], ...]


class Sampler:
    """Chooses the tokens of one answer, each by a random number of its own place.

    Attributes:
        sampling: How.
        likelihoods: Of the tokens so far, if they are asked for.
    """

    def __init__(self, sampling: Sampling, constraint: Constraint | None = None, likeliest: int | None = None) -> None:
        """Take a description.

        Args:
            sampling: How tokens are chosen.
            constraint: What the answer has to be.
            likeliest: How many of the likeliest tokens :attr:`likelihoods` name; None for no likelihoods.
        """
        self.sampling = sampling
        self.likelihoods: list[TokenLikelihood] = []
        self._constraint, self._likeliest = constraint, likeliest
        self._said: list[int] = []
        self._key = np.random.SeedSequence(sampling.seed).generate_state(2, np.uint64)

    @property
    def is_plain(self) -> bool:
        """Whether a choice depends on scores and random numbers alone, and only the token is asked for."""
        return self._constraint is None and self._likeliest is None and not self.sampling.has_penalties

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

        Candidates are in the order of their scores, equal ones in that of tokens; where all may be drawn, they are in
        that of tokens. The first one is chosen up to which the probabilities add up to more than the random number.

        Args:
            scores: Of all tokens.
            place: In the answer, from 0 on.

        Returns:
            The token.

        Raises:
            DeviceError: Scores are no numbers.
            ValueError: No token may be chosen, or a bias is of one that the model does not know.
        """
        scores = scores.astype(np.float64).ravel()
        check_scores(float(scores.sum()))
        token = self._chosen(self._changed(scores), self.draw(place) if self.sampling.temperature else 0.0)
        if self._likeliest is not None:
            self.likelihoods.append(likelihood(scores, token, self._likeliest))
        if self._constraint is not None:
            self._constraint.take(token)
        self._said.append(token)
        return token

    def _changed(self, plain: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores with penalties and biases, minus infinity for what may not be chosen."""
        scores, sampling = plain.copy(), self.sampling
        if sampling.has_penalties and self._said:
            tokens, counts = np.unique(self._said[-sampling.penalty_window :], return_counts=True)
            found, factor = scores[tokens], sampling.repetition_penalty
            found = np.where(found > 0, found / factor, found * factor)
            scores[tokens] = found - sampling.presence_penalty - sampling.frequency_penalty * counts
        for token, bias in sampling.bias.items():
            if token >= len(scores):
                raise ValueError(f"bias has token {token}, and the model knows {len(scores)} tokens")
            scores[token] += bias
        if self._constraint is not None:
            allowed = self._constraint.allowed()[: len(scores)]
            scores[: len(allowed)][~allowed] = -inf
            scores[len(allowed) :] = -inf
        if scores.max() == -inf:
            raise ValueError("no token may be chosen: all of them are forbidden")
        return scores

    def _chosen(self, scores: NDArray[np.float64], draw: float) -> int:
        sampling = self.sampling
        if sampling.temperature == 0:
            return int(scores.argmax())
        candidates = np.arange(len(scores))
        k = sampling.candidates(len(scores))
        if (k, sampling.top_p, sampling.min_p) != (None, None, None):
            candidates = np.argsort(-scores, kind="stable")[:k]
        weights = np.exp((scores[candidates] - scores.max()) / sampling.temperature)
        if sampling.top_p is not None:
            sums = weights.cumsum()
            weights[1:][sums[:-1] >= sampling.top_p * sums[-1]] = 0
        if sampling.min_p is not None:
            weights[weights < sampling.min_p] = 0
        sums = weights.cumsum()
        return int(candidates[np.searchsorted(sums, sums[-1] * draw, side="right")])


def likelihood(scores: NDArray[Any], token: int, likeliest: int = 0) -> TokenLikelihood:
    """Return how likely a token is, and the likeliest tokens.

    Args:
        scores: The scores of all tokens, in any shape.
        token: The one that was chosen.
        likeliest: How many of the likeliest tokens to return.

    Returns:
        Natural logarithms of probabilities: a softmax of the scores in double precision.
    """
    scores = scores.astype(np.float64).ravel()
    below = scores - scores.max()
    logarithms = below - np.log(np.exp(below).sum())
    first = np.argsort(-scores, kind="stable")[:likeliest]
    return TokenLikelihood(
        token, float(logarithms[token]), tuple((int(each), float(logarithms[each])) for each in first)
    )


def check_scores(total: float) -> None:
    """Accept scores that are numbers.

    Args:
        total: Their sum.

    Raises:
        DeviceError: The sum is infinite or no number.
    """
    if not total < inf:
        raise DeviceError("the model's scores are no numbers; precision fp32 may help")
