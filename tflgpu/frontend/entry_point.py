"""The part of a model that is to be run: a signature or its main subgraph, in the shapes that the caller asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from tflgpu.frontend.lowered import Lowered
from tflgpu.frontend.partition import Partition
from tflgpu.graph.layout import Shape
from tflgpu.model.model import NUMPY_TYPES, FileTensor, Model, Operator, Signature, Subgraph, VariableUse
from tflgpu.options import Options


class Bound(NamedTuple):
    """An output and the input that has its value in the next run, each under its name."""

    output: tuple[str, FileTensor]
    input: tuple[str, FileTensor]


@dataclass(frozen=True)
class EntryPoint:
    """The part of a model that is to be run: a subgraph, its operators, and its tensors in and out under callers'
    names.

    signature: its key; None for a part of a model, and for the main subgraph of a file without signatures.
    bound: outputs, each with the input that has its value in the next run, which are in none of the others.
    variables: resource variables whose values it has between runs.
    """

    subgraph: int
    operators: tuple[Operator, ...]
    inputs: tuple[tuple[str, FileTensor], ...]
    outputs: tuple[tuple[str, FileTensor], ...]
    signature: str | None = None
    bound: tuple[Bound, ...] = ()
    variables: tuple[VariableUse, ...] = ()

    def partition(self, graph: Subgraph, partition: Partition) -> EntryPoint:
        """Return a part of the entry point, its tensors under the names of the file.

        Args:
            graph: The entry point's subgraph.
            partition: The operators of the part.
        """
        inputs, outputs = (
            tuple((f"{t}", graph.tensors[t]) for t in side) for side in (partition.inputs, partition.outputs)
        )
        operators = tuple(graph.operators[i] for i in partition.operators)
        return EntryPoint(self.subgraph, operators, inputs, outputs, variables=partition.held)


def entry_point(model: Model, signature: str | None = None, outputs: Sequence[str | int] | None = None) -> EntryPoint:
    """Return one signature of a model, perhaps with other outputs.

    Args:
        model: The file.
        signature: Its key; None for the first, or for the main subgraph if there is none.
        outputs: Names or indices of tensors; None for the signature's own.

    Raises:
        ValueError: The signature or an output is unknown.
    """
    chosen = _signature(model, signature)
    index = chosen.subgraph if chosen else 0
    subgraph = model.subgraphs[index]
    if signature is not None and chosen and (strange := {*chosen.inputs.values()} - {*subgraph.inputs}):
        names = [name for name, t in chosen.inputs.items() if t in strange]
        raise ValueError(f"signature {signature!r} has inputs {names}, which are no inputs of its subgraph {index}")
    inputs = _named(subgraph, chosen.inputs if chosen else {}, subgraph.inputs, "input")
    used = {*subgraph.outputs, *(t for operator in subgraph.operators for t in operator.inputs)}
    # An input of strings or resource handles that no operator reads is no input of the compiled model.
    inputs = tuple(each for each in inputs if each[1].dtype in NUMPY_TYPES or each[1].index in used)
    own = _named(subgraph, chosen.outputs if chosen else {}, subgraph.outputs, "output")
    key = chosen.key if chosen else None
    wanted = own if outputs is None else _requested(subgraph, dict(own), outputs)
    wanted = tuple((name, subgraph.tensors[subgraph.aliases.get(t.index, t.index)]) for name, t in wanted)
    return EntryPoint(index, subgraph.operators, inputs, wanted, key, variables=subgraph.variables)


def with_bound(entry: EntryPoint, pairs: Mapping[str, str]) -> EntryPoint:
    """Return the entry point without outputs that are bound to inputs, and without these inputs.

    Args:
        entry: The entry point.
        pairs: Names of inputs by outputs.

    Raises:
        ValueError: A name is unknown.
    """
    inputs, outputs = dict(entry.inputs), dict(entry.outputs)
    for names, known, side in ((pairs, outputs, "output"), (pairs.values(), inputs, "input")):
        if missing := [name for name in names if name not in known]:
            raise ValueError(f"Options.interface.bound names {missing}; the model has the {side}s {list(known)}")
    bound = tuple(Bound((o, outputs[o]), (i, inputs[i])) for o, i in pairs.items())
    left = tuple(each for each in entry.inputs if each[0] not in pairs.values())
    return replace(entry, inputs=left, outputs=tuple(e for e in entry.outputs if e[0] not in pairs), bound=bound)


def signatures_of(model: Model) -> Iterator[EntryPoint]:
    """Yield the entry points of all signatures of ``model`` that can be run."""
    for signature in model.signatures:
        with suppress(ValueError):  # its inputs are those of no subgraph
            yield entry_point(model, signature.key)


def _requested(
    subgraph: Subgraph, own: Mapping[str, FileTensor], outputs: Sequence[str | int]
) -> tuple[tuple[str, FileTensor], ...]:
    """Tensors by names, or by indices, which become names: few files have names for all tensors, each another one."""
    computed = [t for t in subgraph.tensors if t.data is None]
    by_name = {t.name: t for t in computed} | dict(own)
    by_index = {t.index: t for t in computed}
    names = {t.index: name for name, t in own.items()}
    missing = [o for o in outputs if o not in (by_name if isinstance(o, str) else by_index)]
    if missing:
        raise ValueError(
            f"the model has no tensor named {', '.join(map(repr, missing))}; `tflgpu inspect --operators` lists them"
        )
    requested: dict[str, FileTensor] = {}
    for output in outputs:
        if isinstance(output, str):
            requested[output] = by_name[output]
        else:
            name = names.get(output) or by_index[output].name
            requested[name if name and name not in requested else f"{name}_{output}"] = by_index[output]
    return tuple(requested.items())


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
    """Tensors under the signature's argument names, else their own; a name that occurs twice gets a number.

    An output has every name that the signature gives it. After the subgraph's outputs come those that the signature
    alone has: tools put operators after an output, and leave the signature as it was.
    """
    if side == "output":
        indices = [*indices, *dict.fromkeys(t for t in arguments.values() if t not in indices)]
    arguments = {name: index for name, index in arguments.items() if index in indices}
    names: dict[int, list[str]] = {}
    for name, index in arguments.items():
        names.setdefault(index, []).append(name)
    left = Counter(indices)
    named: dict[str, FileTensor] = {}
    for position, index in enumerate(indices):
        tensor, own = subgraph.tensors[index], names.get(index, [])
        left[index] -= 1
        taken = own[-1:] if side == "input" else own[:1] if left[index] else own
        names[index] = own[len(taken) :]
        for name in taken or [tensor.name or f"{side}_{position}"]:
            is_taken = name in named or (not taken and name in arguments)
            named[f"{name}_{position}" if is_taken else name] = tensor
    return tuple(named.items())


def requested_shapes(entry: EntryPoint, options: Options) -> Mapping[int, Shape]:
    """Return the input shapes that differ from the file's, by the file's tensor index.

    Args:
        entry: The entry point.
        options: Shapes by name win over the batch.

    Raises:
        ValueError: An input is not there, a rank differs, or a size is below 1.
    """
    given = dict(options.shapes.inputs or {})
    shapes: dict[int, Shape] = {}
    for name, tensor in entry.inputs:
        requested = given.pop(name, None)
        shape = None if requested is None else tuple(requested)
        if shape is None and options.shapes.batch is not None:
            if not tensor.shape:
                raise ValueError(f"Options.shapes.batch is {options.shapes.batch}, but input {name!r} has no axes")
            shape = (options.shapes.batch, *tensor.shape[1:])
        if shape is None or shape == tensor.shape:
            continue
        if len(shape) != len(tensor.shape) or min(shape, default=1) < 1:
            raise ValueError(
                f"Options.shapes.inputs has {list(shape)} for {name!r}; {len(tensor.shape)} positive sizes were "
                f"expected, the file has {list(tensor.signature)}"
            )
        shapes[tensor.index] = shape
    if given:
        known = ", ".join(repr(name) for name, _ in entry.inputs)
        raise ValueError(f"Options.shapes.inputs names {sorted(given)}; the model has the inputs {known}")
    return shapes


def check_batch(lowered: Lowered, batch: int) -> None:
    """Accept a model that carries the batch of its inputs through to every output.

    Some files have a batch of 1 written into the constants of an operator; what such a model computes of a larger one
    is not a batch of results.

    Args:
        lowered: The model, lowered with this batch.
        batch: The batch of the options.

    Raises:
        ValueError: An output has another batch.
    """
    declared_batch = max(1, lowered.inputs[0][1].shape[0])
    for (name, tensor), shape in zip(lowered.outputs, lowered.output_shapes, strict=True):
        declared = tensor.shape[:1]
        if not shape or not declared or shape[0] != batch * max(1, declared[0] // declared_batch):
            raise ValueError(
                f"Options.shapes.batch is {batch}, but output {name!r} then has shape {list(shape)}: an operator of "
                "this model has its batch size as a constant; run the images one by one"
            )
