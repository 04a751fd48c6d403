"""Which tensors are kept, of models whose errors are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tflgpu.measure.mixed_precision.storage_search import Errors, Sensitivities, fewest_kept, sensitivities

INPUTS = 5


class Model:
    """Tensors whose rounding errors are independent: squares add up. ``runs`` are counted."""

    def __init__(self, errors: Sequence[float]) -> None:
        self.squares = np.square(errors)
        self.runs = 0

    def measure(self, kept: frozenset[int], numbers: Sequence[int]) -> Errors:
        self.runs += len(numbers)
        total = sum(square for tensor, square in enumerate(self.squares) if tensor not in kept) ** 0.5
        return np.array([[total / (1 + number), 0.0] for number in numbers])

    def kept(self, limit: float, runs: int = 1000) -> frozenset[int]:
        found = sensitivities(self.measure, len(self.squares), INPUTS, runs)
        return fewest_kept(self.measure, found, INPUTS, limit, limit)


def test_nothing_is_kept_where_half_is_good_enough() -> None:
    assert Model([0.001] * 20).kept(0.01) == frozenset()


def test_the_most_sensitive_are_kept_and_no_more() -> None:
    assert Model([0.001, 0.02, 0.003, 0.5, 0.002]).kept(0.004) == {1, 3}


def test_what_becomes_infinite_is_kept() -> None:
    assert Model([0.001, np.inf, 0.001]).kept(0.01) == {1}


def test_many_small_errors_add_up() -> None:
    """A hundred of 0.002 make 0.02; twenty-five are left."""
    assert len(Model([0.002] * 100).kept(0.01)) == pytest.approx(75, abs=1)


def test_a_slow_model_is_looked_at_in_groups() -> None:
    errors = [0.0] * 100
    errors[42] = 0.5
    model = Model(errors)
    kept = model.kept(0.01, runs=30)
    assert 42 in kept and len(kept) == 10
    assert model.runs <= INPUTS + 30 + INPUTS * 7


def test_a_model_without_tensors() -> None:
    assert Model([]).kept(0.01) == frozenset()


def test_errors_of_a_mixture_that_are_larger_than_expected_count() -> None:
    """Two tensors whose errors reinforce each other: alone each is fine."""

    def measure(kept: frozenset[int], numbers: Sequence[int]) -> Errors:
        return np.full((len(numbers), 1), (0.001, 0.001, 0.1)[2 - len(kept)])

    found = Sensitivities(0.1, ((0,), (1,)), np.full((2, 1, 1), 0.001))
    assert len(fewest_kept(measure, found, INPUTS, 0.01, 0.01)) == 1
