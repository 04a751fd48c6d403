"""LiteRT's CPU interpreter, to compare with; it comes with the extra ``fallback``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from numpy.typing import NDArray


def is_installed() -> bool:
    return find_spec("ai_edge_litert") is not None


class LiteRT:
    """A model on LiteRT's CPU path with its defaults, XNNPACK where it applies.

    Raises ValueError if LiteRT is not installed or refuses the model.
    """

    def __init__(self, model: bytes, threads: int | None) -> None:
        """threads: None leaves the number to LiteRT."""
        if not is_installed():
            raise ValueError('LiteRT is not installed; `pip install "tflgpu[fallback]"` brings it')
        from ai_edge_litert.interpreter import Interpreter

        self.version = version("ai-edge-litert")
        self.name = f"LiteRT {self.version} CPU"
        self.threads = threads
        try:
            with _quiet():
                self._interpreter: Any = Interpreter(model_content=model, num_threads=threads)
                self._interpreter.allocate_tensors()
        except RuntimeError as error:
            raise ValueError(f"LiteRT cannot run this model: {error}") from error
        self._inputs = [d["index"] for d in self._interpreter.get_input_details()]
        self._outputs = [d["index"] for d in self._interpreter.get_output_details()]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """From host arrays to host arrays, in the order of the model's main subgraph."""
        for index, array in zip(self._inputs, inputs, strict=True):
            self._interpreter.set_tensor(index, array)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._outputs]


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop what native code writes to stderr: LiteRT announces its delegates there, in the midst of our tables."""
    sys.stderr.flush()
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
