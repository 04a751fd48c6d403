"""Runs the signatures of a model that share a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

import tflgpu
from tflgpu.language.device_chain import DeviceChain
from tflgpu.language.sampling import Sampling

Arrays = dict[str, NDArray[Any]]


class CachedRuns:
    """Runs of signatures, each with the cache as the run before left it: the state of a session, on the device."""

    def __init__(
        self,
        session: tflgpu.ModelSession,
        empty: Mapping[str, NDArray[Any]] | None,
        chain: Callable[[tflgpu.ModelSession, Sampling], DeviceChain | None],
    ) -> None:
        """empty: values of an empty cache by name; None for zeros. chain: makes what runs ahead on a session."""
        self._session, self._empty, self._chain = session, empty, chain
        self.reset()

    def open(self, signature: str) -> None:
        """Compile a signature, unless that is done.

        Args:
            signature: Its name in the file.
        """
        self._session.prepare(signature)

    def run(self, signature: str, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run a signature, and return its outputs without the cache.

        Args:
            signature: Its name in the file.
            inputs: Arrays by name, without the cache.
        """
        return self._session.run(signature, inputs)

    def chain(self, sampling: Sampling) -> DeviceChain | None:
        """Return a chain that chooses tokens on the device and steps ahead of the caller.

        Args:
            sampling: How tokens are chosen.

        Returns:
            None where the model or the way of choosing does not allow it.
        """
        return self._chain(self._session, sampling)

    def reset(self) -> None:
        """Empty the cache."""
        self._session.reset(self._empty)

    def values(self) -> Arrays:
        """Return a copy of the cache, by name."""
        return {name: self._session.state(name) for name in self._session.states}

    def set(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Fill the cache with values that :meth:`values` returned.

        Args:
            values: Arrays by the names of the cache's tensors.
        """
        self._session.reset(values)

    def close(self) -> None:
        """Release the memory of the cache."""
        self._session.close()
