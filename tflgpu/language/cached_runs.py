"""Runs the signatures of a model that share a cache of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import NDArray

import tflgpu
from tflgpu.language.language_steps import DECODE, LanguageSteps

Arrays = dict[str, NDArray[Any]]


class CachedRuns(Protocol):
    """Runs of signatures, each with the cache as the run before left it."""

    def open(self, signature: str) -> None:
        """Compile a signature, unless that is done."""

    def run(self, signature: str, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run a signature, and return its outputs without the cache."""

    def reset(self) -> None:
        """Empty the cache."""

    def close(self) -> None:
        """Release the device's memory."""


class SessionRuns:
    """The cache is the state of a session, which stays on the device."""

    def __init__(self, model: bytes, options: tflgpu.Options, steps: LanguageSteps) -> None:
        interface = replace(options.interface, signature=DECODE)
        self._model = tflgpu.compile(model, replace(options, interface=interface))
        self._session = self._model.session({name: name for name in steps.decode.caches})

    def open(self, signature: str) -> None:
        """Compile a signature, unless that is done."""
        self._model.signatures[signature]

    def run(self, signature: str, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run a signature, and return its outputs without the cache."""
        return self._session.run(signature, inputs)

    def reset(self) -> None:
        """Empty the cache."""
        self._session.reset()

    def close(self) -> None:
        """Release the device's memory."""
        self._session.close()
        self._model.close()
