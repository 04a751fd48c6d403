"""Steps of a model on its device that begin before the host knows the token that they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.language.language_steps import DECODE, SCORES
from tflgpu.language.sampler_model import CHOSEN, DRAW, NEXT, TOTAL
from tflgpu.language.sampler_model import SCORES as GIVEN_SCORES
from tflgpu.language.sampling import check_scores


class DeviceChain:
    """Steps of a model whose tokens the device chooses, each of which is the input of the next step.

    Scores and token stay on the device between the model and the sampler, which are on one queue."""

    def __init__(
        self, session: tflgpu.ModelSession, sampler: tflgpu.CompiledModel, model: tflgpu.CompiledModel, token: str
    ) -> None:
        """token: the input of the model that is the token."""
        self._session, self._sampler, self._token = session, sampler, token
        self._draws = any(info.name == DRAW for info in sampler.inputs)
        self._scores, self._next = sampler.device_buffer(GIVEN_SCORES), model.device_buffer(token)

    def enqueue(self, inputs: Mapping[str, NDArray[Any]], draw: float) -> ChosenToken:
        """Start a step. It reads the token of the last step, unless the token is among the inputs.

        Args:
            inputs: Arrays by name, without the cache.
            draw: A random number in [0, 1), by which the token is chosen.
        """
        self._session.enqueue(DECODE, {self._token: self._next, **inputs}, {SCORES: self._scores})
        given: dict[str, Any] = {GIVEN_SCORES: self._scores}
        if self._draws:
            given[DRAW] = np.full((1, 1), draw, np.float32)
        return ChosenToken(self._sampler.enqueue(given, {NEXT: self._next}))


class ChosenToken:
    """A token that is known later."""

    def __init__(self, submission: tflgpu.Submission) -> None:
        self._submission = submission

    def wait(self) -> int:
        """Return the token. Raises DeviceError if the device fails, or the scores are no numbers."""
        outputs = self._submission.wait()
        check_scores(float(outputs[TOTAL][0]))
        return int(outputs[CHOSEN][0])
