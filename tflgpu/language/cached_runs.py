"""Runs the signatures of a model that share a cache of keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import NDArray

import tflgpu
from tflgpu.errors import CacheMissError, UnsupportedError
from tflgpu.language.language_steps import DECODE, LanguageSteps
from tflgpu.model.tensor_info import SignatureInfo

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
    """The cache is the state of a session, which stays on the device.

    Signatures are compiled with it at once: without it, none of them is ever run.
    """

    def __init__(
        self, model: bytes, options: tflgpu.Options, steps: LanguageSteps, signatures: Sequence[SignatureInfo]
    ) -> None:
        caches = {name: name for name in steps.decode.caches}
        interface = replace(options.interface, signature=DECODE)
        inputs = next(signature.inputs for signature in signatures if signature.key == DECODE)
        on_device = {i.name for i in inputs if i.name in caches and not i.free_axes and i.quantization is None}
        bound = replace(interface, bound={name: name for name in caches if name in on_device} or None)
        try:
            self._model = tflgpu.compile(model, replace(options, interface=bound))
        except (UnsupportedError, CacheMissError):  # a part of it runs on the CPU, or the cache has it without states
            self._model = tflgpu.compile(model, replace(options, interface=interface))
        self._session = self._model.session(caches)

    def open(self, signature: str) -> None:
        """Compile a signature, unless that is done."""
        self._session.prepare(signature)

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
