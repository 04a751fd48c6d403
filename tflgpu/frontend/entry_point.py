"""What is to be run of a model: a signature or its main subgraph, perhaps only a part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tflgpu.frontend.partition import Partition
from tflgpu.model.model import FileTensor, Model, Operator, Signature, Subgraph


@dataclass(frozen=True)
class EntryPoint:
    """What is to be run of a model: a subgraph, its operators, and the tensors in and out under callers' names."""

    subgraph: int
    operators: tuple[Operator, ...]
    inputs: tuple[tuple[str, FileTensor], ...]
    outputs: tuple[tuple[str, FileTensor], ...]

    def partition(self, graph: Subgraph, partition: Partition) -> EntryPoint:
        """A part of it, its tensors under the names of the file."""
        inputs, outputs = (
            tuple((f"{t}", graph.tensors[t]) for t in side) for side in (partition.inputs, partition.outputs)
        )
        return EntryPoint(self.subgraph, tuple(graph.operators[i] for i in partition.operators), inputs, outputs)


def entry_point(model: Model, signature: str | None = None, outputs: Sequence[str] | None = None) -> EntryPoint:
    """One signature of ``model`` (by default the first, or the main subgraph), perhaps with other outputs.

    Raises ValueError for an unknown signature or output name.
    """
    chosen = _signature(model, signature)
    index = chosen.subgraph if chosen else 0
    subgraph = model.subgraphs[index]
    inputs = _named(subgraph, chosen.inputs if chosen else {}, subgraph.inputs, "input")
    own = _named(subgraph, chosen.outputs if chosen else {}, subgraph.outputs, "output")
    if outputs is None:
        return EntryPoint(index, subgraph.operators, inputs, own)
    known = {t.name: t for t in subgraph.tensors if t.data is None} | dict(own)
    missing = [name for name in outputs if name not in known]
    if missing:
        raise ValueError(f"the model has no tensor named {', '.join(map(repr, missing))}; `tflgpu inspect` lists them")
    return EntryPoint(index, subgraph.operators, inputs, tuple((name, known[name]) for name in outputs))


def _signature(model: Model, key: str | None) -> Signature | None:
    if key is None:
        return model.signatures[0] if model.signatures and model.signatures[0].subgraph == 0 else None
    found = next((s for s in model.signatures if s.key == key), None)
    if found is None:
        known = ", ".join(repr(s.key) for s in model.signatures) or "none"
        raise ValueError(f"the model has no signature {key!r}; it has: {known}")
    return found


def _named(
    subgraph: Subgraph, arguments: Mapping[str, int], indices: Sequence[int], side: str
) -> tuple[tuple[str, FileTensor], ...]:
    """Tensors under the signature's argument names, else their own; a name that occurs twice gets a number."""
    names = {index: name for name, index in arguments.items()}
    named: dict[str, FileTensor] = {}
    for position, index in enumerate(indices):
        tensor = subgraph.tensors[index]
        name = names.get(index, tensor.name) or f"{side}_{position}"
        named[name if name not in named else f"{name}_{position}"] = tensor
    return tuple(named.items())
