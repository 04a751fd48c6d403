"""The model of an interpreter, and the tensors of its subgraphs, which signatures share with it."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fsdecode
from typing import TYPE_CHECKING

from tflgpu.errors import ModelError
from tflgpu.interpreter.subgraph_tensors import SignatureCompiler, SubgraphTensors
from tflgpu.model.model_source import Buffer, ModelContent
from tflgpu.options import Options

if TYPE_CHECKING:
    from tflgpu.model.model import Signature


def read_content(path: str | bytes | PathLike[str] | None, content: Buffer | None) -> ModelContent:
    """Return the model of an interpreter's first two arguments.

    Args:
        path: A file; None or empty if there is content.
        content: The bytes of a model; None or empty if there is a path.

    Raises:
        ValueError: Neither or both are given.
        TypeError: The content is a text or a path.
    """
    if not path and not content:
        raise ValueError("`model_path` or `model_content` must be specified.")
    if path and content:
        raise ValueError("Can't both provide `model_path` and `model_content`")
    if isinstance(content, str | PathLike):
        raise TypeError(f"model_content is of type {type(content).__name__}; the bytes of a model were expected")
    return ModelContent(content or (fsdecode(path) if isinstance(path, bytes) else path) or "")


class LoadedModel:
    """A model that was read once: what is compiled later is what is described now.

    preserve: every tensor that operators compute, and variables, can be read after a run, not the outputs alone.
    Raises ValueError for a file that cannot be read, and for what is no model.
    """

    def __init__(self, content: ModelContent, options: Options, *, preserve: bool) -> None:
        from tflgpu.model.reader import read_model  # a warm start of tflgpu.compile does without

        self._options, self._preserve = options, preserve
        place = f"'{content.path}'" if content.path else "model_content"
        try:
            self._source = content.bytes
            model = read_model(self._source)
        except OSError as error:
            raise ValueError(f"Could not open {place}: {error.strerror}") from error
        except ModelError as error:
            raise ValueError(f"{place} is not a valid model: {error}") from error
        self.subgraphs, self.signatures = model.subgraphs, model.signatures
        self._model = model
        self._by_subgraph: dict[int, SubgraphTensors] = {}
        self._compiler = SignatureCompiler(self._source)

    def signature(self, key: str) -> Signature:
        """Return the signature of a key.

        Args:
            key: Its name in the file.

        Raises:
            ValueError: The file has no such signature.
        """
        found = next((s for s in self.signatures if s.key == key), None)
        if found is None:
            raise ValueError(f'Invalid signature_key provided: "{key}".')
        return found

    def tensors(self, number: int) -> SubgraphTensors:
        """Return the tensors of a subgraph. Only the main one and those of signatures can run.

        Args:
            number: The place of the subgraph in the file.
        """
        if number not in self._by_subgraph:
            self._by_subgraph[number] = self._open(number)
        return self._by_subgraph[number]

    def reset_variables(self) -> None:
        """Set all variables to their initial values."""
        for tensors in self._by_subgraph.values():
            tensors.reset_variables()

    def _open(self, number: int) -> SubgraphTensors:
        from tflgpu.frontend.entry_point import EntryPoint, entry_point  # a warm start of tflgpu.compile does without

        options, entry = self._options, EntryPoint(number, (), (), ())
        key = next((s.key for s in self.signatures if s.subgraph == number), None)
        if number == 0 or key is not None:
            wanted = replace(options.interface, signature=key if number else None, outputs=self._preserved(number))
            options = replace(options, interface=wanted)
            entry = entry_point(self._model, options.interface.signature, options.interface.outputs)
        return SubgraphTensors(self._compiler, self.subgraphs[number].tensors, entry, options)

    def _preserved(self, number: int) -> tuple[int, ...] | None:
        """Return the tensors that a run of a subgraph leaves readable; None for its outputs alone."""
        from tflgpu.model.model import NUMPY_TYPES

        if not self._preserve:
            return None
        subgraph = self.subgraphs[number]
        used = [t for operator in subgraph.operators for t in (*operator.inputs, *operator.outputs)]
        tensors = (subgraph.tensors[t] for t in dict.fromkeys((*subgraph.outputs, *used)) if t >= 0)
        kept = (t for t in tensors if t.data is None and t.dtype in NUMPY_TYPES)
        return tuple(t.index for t in kept if t.index not in subgraph.inputs) or None
