"""Runs the signatures of a model that share a cache of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.language.signatures import LanguageSteps

Arrays = dict[str, NDArray[Any]]


class CachedRuns(Protocol):
    """Runs of signatures, each with the cache as the run before left it."""

    def run(self, signature: str, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run a signature, and return its outputs without the cache."""

    def reset(self) -> None:
        """Empty the cache."""

    def close(self) -> None:
        """Release the device's memory."""


class CarriedCache:
    """The cache is an array of the host, an output of one run and an input of the next."""

    def __init__(self, model: bytes, options: tflgpu.Options, steps: LanguageSteps) -> None:
        self._compiled = {
            step.signature: tflgpu.compile(
                model, replace(options, interface=replace(options.interface, signature=step.signature))
            )
            for step in (steps.decode, *steps.prefills)
        }
        inputs = self._compiled[steps.decode.signature].inputs
        self._infos = [info for info in inputs if info.name in steps.decode.caches]
        self._cache = self._empty()

    def run(self, signature: str, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run a signature, and return its outputs without the cache."""
        outputs = self._compiled[signature].run({**inputs, **self._cache})
        self._cache = {info.name: outputs.pop(info.name) for info in self._infos}
        return outputs

    def reset(self) -> None:
        """Empty the cache."""
        self._cache = self._empty()

    def close(self) -> None:
        """Release the device's memory."""
        for compiled in self._compiled.values():
            compiled.close()

    def _empty(self) -> Arrays:
        return {info.name: np.zeros(info.shape, info.dtype) for info in self._infos}
