"""Runs the signatures of a model that share a cache of keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.errors import CacheMissError, UnsupportedError
from tflgpu.language.language_steps import DECODE, SCORES, LanguageSteps
from tflgpu.language.sampler_model import CHOSEN, DRAW, NEXT, TOTAL, sampler_model
from tflgpu.language.sampler_model import SCORES as GIVEN_SCORES
from tflgpu.language.sampling import Sampling, check_scores
from tflgpu.model.tensor_info import SignatureInfo, TensorInfo

Arrays = dict[str, NDArray[Any]]


class CachedRuns:
    """Runs of signatures, each with the cache as the run before left it: the state of a session, on the device.

    Signatures are compiled with it at once: without it, none of them is ever run.
    """

    def __init__(
        self,
        model: bytes,
        options: tflgpu.Options,
        steps: LanguageSteps,
        signatures: Sequence[SignatureInfo],
        ahead: bool | None = None,
    ) -> None:
        """ahead: whether there are chains, where the model allows it; by default not on CPUs."""
        caches = {name: name for name in steps.decode.caches}
        interface = replace(options.interface, signature=DECODE)
        decode = next(signature for signature in signatures if signature.key == DECODE)
        inputs = decode.inputs
        on_device = {i.name for i in inputs if i.name in caches and not i.free_axes and i.quantization is None}
        bound = replace(interface, bound={name: name for name in caches if name in on_device} or None)
        try:
            self._model = tflgpu.compile(model, replace(options, interface=bound))
            is_whole = on_device == caches.keys()
        except (UnsupportedError, CacheMissError):  # a part of it runs on the CPU, or the cache has it without states
            self._model = tflgpu.compile(model, replace(options, interface=interface))
            is_whole = False
        self._session = self._model.session(caches)
        self._options, self._steps, self._decode = options, steps, decode
        self._runs_ahead = (
            is_whole and steps.has_places and (self._model.device.type != "cpu" if ahead is None else ahead)
        )
        self._samplers: dict[tuple[float, int | None], tflgpu.CompiledModel | None] = {}

    def open(self, signature: str) -> None:
        """Compile a signature, unless that is done."""
        self._session.prepare(signature)

    def run(self, signature: str, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run a signature, and return its outputs without the cache."""
        return self._session.run(signature, inputs)

    def chain(self, sampling: Sampling) -> DeviceChain | None:
        """Return what runs the signature ``decode`` before the token is known that it reads; None where that cannot be.

        A step that runs in vain writes rows of the cache that the next one at its place writes anew. So each cache has
        a row for each place, and the device runs the whole step.
        """
        scores = next(info for info in self._decode.outputs if info.name == SCORES)
        token = next(info for info in self._decode.inputs if info.name == self._steps.decode.tokens)
        if not self._runs_ahead or not (_is_plain(scores, "float32") and _is_plain(token, "int32")):
            return None
        kind = sampling.temperature, sampling.top_k
        if kind not in self._samplers:
            self._samplers[kind] = self._sampler(sampling, scores, token)
        sampler = self._samplers[kind]
        return None if sampler is None else DeviceChain(self._session, sampler, self._model, token.name)

    def _sampler(self, sampling: Sampling, scores: TensorInfo, token: TensorInfo) -> tflgpu.CompiledModel | None:
        """On the queue of the model; None if the device cannot run it, or nothing may be compiled."""
        options = tflgpu.Options(
            precision="fp32",
            fallback="forbid",
            cache=self._options.cache,
            cache_files=replace(self._options.cache_files, model_token=None),
            execution=tflgpu.Execution(kernels=self._options.execution.kernels),
        )
        try:
            return tflgpu.compile(sampler_model(sampling, scores.shape, token.shape), options, queue=self._model.queue)
        except (UnsupportedError, CacheMissError):
            return None

    def reset(self) -> None:
        """Empty the cache."""
        self._session.reset()

    def close(self) -> None:
        """Release the device's memory."""
        for sampler in self._samplers.values():
            if sampler is not None:
                sampler.close()
        self._session.close()
        self._model.close()


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
        """Start a step. It reads the token of the last one, unless it is among the inputs.

        draw: the random number of the token that it chooses.
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


def _is_plain(info: TensorInfo, dtype: str) -> bool:
    """Whether it is one row of numbers of this type, of a known shape."""
    is_row = prod(info.shape) == info.shape[-1] if info.shape else False
    return is_row and info.dtype == dtype and info.quantization is None and not info.free_axes
