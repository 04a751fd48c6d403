"""A language model on its device: kernels and weights of its signatures, and what chooses tokens on the device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.errors import CacheMissError, ModelError, UnsupportedError
from tflgpu.language.cached_runs import CachedRuns
from tflgpu.language.device_chain import DeviceChain
from tflgpu.language.language_steps import DECODE, SCORES, LanguageSteps
from tflgpu.language.sampler_model import sampler_model
from tflgpu.language.sampling import Sampling
from tflgpu.model.tensor_info import SignatureInfo, TensorInfo


class CompiledSteps:
    """The signatures of a language model, compiled. Any number of caches share them, each with runs of its own.

    Signatures are compiled with their cache at once: without it, none of them is ever run.
    """

    def __init__(
        self,
        model: bytes,
        options: tflgpu.Options,
        steps: LanguageSteps,
        signatures: Sequence[SignatureInfo],
        ahead: bool | None = None,
        cache_value: int = 0,
    ) -> None:
        """Compile ``decode``.

        ahead: whether there are chains, where the model allows it; by default not on CPUs. cache_value: what an empty
        cache is filled with.
        """
        caches = {name: name for name in steps.decode.caches}
        interface = replace(options.interface, signature=DECODE)
        decode = next(signature for signature in signatures if signature.key == DECODE)
        inputs = decode.inputs
        self._empty = _empty([info for info in inputs if info.name in caches], cache_value)
        on_device = {i.name for i in inputs if i.name in caches and not i.free_axes and i.quantization is None}
        # A model of one signature has no other one that tells a session of caches which are bound.
        at_once = on_device if len(signatures) > 1 else set()
        bound = replace(interface, bound={name: name for name in caches if name in at_once} or None)
        try:
            self._model = tflgpu.compile(model, replace(options, interface=bound))
            is_whole = at_once == caches.keys()
        except (UnsupportedError, CacheMissError):  # a part of it runs on the CPU, or the cache has it without states
            self._model = tflgpu.compile(model, replace(options, interface=interface))
            is_whole = False
        self._caches, self._options, self._steps, self._decode = caches, options, steps, decode
        self._runs_ahead = (
            is_whole and steps.has_places and (self._model.device.type != "cpu" if ahead is None else ahead)
        )
        self._samplers: dict[object, tflgpu.CompiledModel | None] = {}
        self._lock = threading.Lock()  # of the samplers

    def runs(self) -> CachedRuns:
        """Return runs on a cache of their own, which is empty."""
        return CachedRuns(self._model.session(self._caches), self._empty, self.chain)

    def chain(self, session: tflgpu.ModelSession, sampling: Sampling) -> DeviceChain | None:
        """Return a chain that starts the signature ``decode`` before the host knows the token that it reads.

        A step that runs in vain writes rows of the cache that the next one at its place writes anew. So each cache has
        a row for each place, and the device runs the whole step.

        Args:
            session: Has the cache.
            sampling: How tokens are chosen.

        Returns:
            None where the model or the way of choosing does not allow it.
        """
        scores = next(info for info in self._decode.outputs if info.name == SCORES)
        token = next(info for info in self._decode.inputs if info.name == self._steps.decode.tokens)
        if not self._runs_ahead or not (_is_plain(scores, "float32") and _is_plain(token, "int32")):
            return None
        if sampling.has_penalties or (sampling.top_k is None and (sampling.top_p, sampling.min_p) != (None, None)):
            return None
        bias = tuple(sorted(sampling.bias.items()))
        kind = sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, bias
        with self._lock:
            if kind not in self._samplers:
                self._samplers[kind] = self._sampler(sampling, scores, token)
            sampler = self._samplers[kind]
        return None if sampler is None else DeviceChain(session, sampler, self._model, token.name)

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

    def close(self) -> None:
        """Release the device's memory."""
        with self._lock:
            for sampler in self._samplers.values():
                if sampler is not None:
                    sampler.close()
        self._model.close()


def _empty(caches: Sequence[TensorInfo], value: int) -> dict[str, NDArray[Any]] | None:
    """Return caches filled with a value, by name; None for zeros, with which a session begins anyway.

    Raises ModelError if the element type of a cache does not have the value.
    """
    if value == 0:
        return None
    for info in caches:
        kind = np.dtype(info.dtype)
        if kind.kind in "iu" and not np.iinfo(kind).min <= value <= np.iinfo(kind).max:
            raise ModelError(f"the file fills its caches with {value}, and {info.name!r} has elements of {info.dtype}")
    return {info.name: np.full(info.shape, value, info.dtype) for info in caches}


def _is_plain(info: TensorInfo, dtype: str) -> bool:
    """Whether it is one row of numbers of this type, of a known shape."""
    is_row = prod(info.shape) == info.shape[-1] if info.shape else False
    return is_row and info.dtype == dtype and info.quantization is None and not info.free_axes
