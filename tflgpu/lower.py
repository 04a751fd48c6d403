"""Model -> Graph: operators become nodes, constants are evaluated, every obstacle is collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from tflgpu.errors import ModelError
from tflgpu.ir import Array, Graph, Node, Step, Tensor, remove_dead
from tflgpu.layout import Shape
from tflgpu.ops import REGISTRY, Emit, Emitter, Site
from tflgpu.ops.evaluate import value_of
from tflgpu.partition import Piece
from tflgpu.quantization import (
    KEEPS_QUANTA,
    dequantize_step,
    dequantized,
    is_quantized,
    quantize_step,
    simulate_step,
    view_dtype,
)
from tflgpu.tflite import FileTensor, Model, Operator, Signature, Subgraph

# Operators of nothing but constants that the lowering computes itself. Their results are weights and shapes.
EVALUATORS: dict[str, Callable[..., Array]] = {
    "DENSIFY": lambda x: x,  # sparse constants are dense since the file was read
    "DEQUANTIZE": lambda x: x.astype(np.float32),
}

# Custom operators that LiteRT, hence a CPU fallback, can run. Any other name is known to nobody.
KNOWN_CUSTOM = frozenset(
    (
        "Convolution2DTransposeBias",
        "MaxPoolingWithArgmax2D",
        "MaxUnpooling2D",
        "Resampler",
        "TFLite_Detection_PostProcess",
    )
)


@dataclass(frozen=True)
class Entry:
    """What the lowering decided about one operator of the model."""

    index: int
    code: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reasons: tuple[str, ...]
    custom: bool


@dataclass(frozen=True)
class Lowered:
    """The graph of all operators that can run, and an entry for each operator whether it can or not.

    ``graph`` is complete, and fit to run, only if no entry has reasons. ``inputs`` and ``outputs`` are the file's
    tensors behind the graph's, in the same order, under the names that callers use.
    """

    graph: Graph
    entries: tuple[Entry, ...]
    inputs: tuple[tuple[str, FileTensor], ...]
    outputs: tuple[tuple[str, FileTensor], ...]

    @property
    def obstacles(self) -> tuple[str, ...]:
        return tuple(f"operator {e.index} {e.code}: {reason}" for e in self.entries for reason in e.reasons)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Obstacles that no CPU helps against: custom operators that nobody knows."""
        custom = (e for e in self.entries if e.custom and e.reasons and e.code not in KNOWN_CUSTOM)
        return tuple(f"operator {e.index}: {reason}" for e in custom for reason in e.reasons)

    @property
    def capable(self) -> frozenset[int]:
        """The operators that can run on the device."""
        return frozenset(e.index for e in self.entries if not e.reasons)


@dataclass(frozen=True)
class EntryPoint:
    """What is to be run of a model: a subgraph, its operators, and the tensors in and out under callers' names."""

    subgraph: int
    operators: tuple[Operator, ...]
    inputs: tuple[tuple[str, FileTensor], ...]
    outputs: tuple[tuple[str, FileTensor], ...]

    def piece(self, graph: Subgraph, piece: Piece) -> EntryPoint:
        """A part of it, its tensors under the names of the file."""
        inputs, outputs = (tuple((f"{t}", graph.tensors[t]) for t in side) for side in (piece.inputs, piece.outputs))
        return EntryPoint(self.subgraph, tuple(graph.operators[i] for i in piece.operators), inputs, outputs)


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


def lower(model: Model, entry: EntryPoint | None = None, *, simulate: bool = True) -> Lowered:
    """Lower an entry point of ``model``, by default :func:`entry_point`'s default.

    simulate: round every quantized activation to the values its type can hold, as integer kernels would.
    Raises ModelError where the model contradicts itself.
    """
    entry = entry or entry_point(model)
    return _Lowering(model.subgraphs[entry.subgraph], entry, simulate).run()


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


class _Lowering:
    def __init__(self, subgraph: Subgraph, entry: EntryPoint, simulate: bool) -> None:
        self.subgraph = subgraph
        self.entry = entry
        self.simulate = simulate
        self.ids = count()
        self.env: dict[int, Tensor] = {}  # tensor of the file -> tensor of the graph
        self.tensors: dict[int, Tensor] = {}
        self.nodes: list[Node] = []

    def run(self) -> Lowered:
        for tensor in self.subgraph.tensors:
            if tensor.data is not None:
                self._bind(tensor.index, self._tensor(tensor))
        inputs = tuple(self._input(t) for _, t in self.entry.inputs)
        entries = tuple(self._entry(o) for o in self.entry.operators)
        outputs = tuple(self._output(t) for _, t in self.entry.outputs)
        graph = Graph(self.tensors, tuple(self.nodes), inputs, outputs)
        return Lowered(remove_dead(graph), entries, self.entry.inputs, self.entry.outputs)

    def _tensor(self, tensor: FileTensor) -> Tensor:
        """A tensor of the graph in the float view: quantized constants as the numbers they stand for."""
        data = tensor.data
        if data is not None and data.shape != tensor.shape:
            data = None  # strings and packed numbers: nothing here can read them
        if data is not None and is_quantized(tensor):
            data = dequantized(tensor)
        return Tensor(next(self.ids), tensor.name, tensor.shape, view_dtype(tensor), data)

    def _input(self, tensor: FileTensor) -> int:
        """Bind a graph input; a quantized one is dequantized by the first node that touches it."""
        given = replace(self._tensor(tensor), dtype=tensor.dtype)
        self.tensors[given.id] = given
        if is_quantized(tensor):
            self._bind(
                tensor.index, self._map(given, replace(self._tensor(tensor), data=None), dequantize_step(tensor))
            )
        else:
            self.env[tensor.index] = given
        return given.id

    def _output(self, tensor: FileTensor) -> int:
        value = self.env[tensor.index]
        if not is_quantized(tensor):
            # A graph output is written by a node, even if its value is known.
            return self._map(value, replace(value, id=next(self.ids), data=None)).id if value.is_constant else value.id
        return self._map(
            value, Tensor(next(self.ids), tensor.name, value.shape, tensor.dtype), quantize_step(tensor)
        ).id

    def _map(self, source: Tensor, result: Tensor, *steps: Step, operator: int | None = None) -> Tensor:
        """Add an elementwise node from ``source`` to ``result``."""
        self.tensors[result.id] = result
        sources = () if operator is None else (operator,)
        self.nodes.append(Node("map", (source.id,), result.id, None, steps, sources))
        return result

    def _bind(self, index: int, tensor: Tensor) -> None:
        self.env[index] = tensor
        self.tensors[tensor.id] = tensor

    def _read(self, index: int) -> Tensor | None:
        """An input of an operator; None if it is absent. State variables and empty constants come into being here."""
        if index >= 0 and index not in self.env:
            self._bind(index, self._tensor(self.subgraph.tensors[index]))
        return self.env[index] if index >= 0 else None

    def _entry(self, operator: Operator) -> Entry:
        names = [self.subgraph.tensors[t].name if t >= 0 else "" for t in (*operator.inputs, *operator.outputs)]
        reasons = self._lower(operator)
        if reasons:  # its results stay unknown values, so that later operators can still be judged
            for index in operator.outputs:
                self._bind(index, self._tensor(self.subgraph.tensors[index]))
        split = len(operator.inputs)
        inputs, outputs = tuple(names[:split]), tuple(names[split:])
        code, version = operator.code, operator.version
        return Entry(operator.index, code, version, inputs, outputs, tuple(reasons), operator.is_custom)

    def _lower(self, operator: Operator) -> list[str]:
        site = self._site(operator)
        if self._evaluate(operator, site):
            return []
        op = REGISTRY.get(operator.code)
        if op is None:
            if operator.is_custom and operator.code not in KNOWN_CUSTOM:
                return [f"custom operator {operator.code!r} is known neither to tflgpu nor to LiteRT"]
            return [f"{operator.code} has no kernel for the device"]
        reasons = op.obstacles(site)
        if not reasons:
            self._emit(operator, op.emit, site)
        return reasons

    def _site(self, operator: Operator) -> Site:
        def open_or_declared(tensor: FileTensor) -> Shape | None:
            unknown = -1 in tensor.signature or not tensor.shape
            return None if unknown else tensor.shape

        return Site(
            operator.index,
            operator.code,
            operator.version,
            tuple(self._read(t) for t in operator.inputs),
            tuple(open_or_declared(self.subgraph.tensors[t]) for t in operator.outputs),
            tuple(view_dtype(self.subgraph.tensors[t]) for t in operator.outputs),
            {"custom_options": operator.custom_options} if operator.is_custom else operator.options,
        )

    def _evaluate(self, operator: Operator, site: Site) -> bool:
        """Compute an operator whose inputs are all constants, if there is an evaluator for it."""
        values = [site.constant(i) for i in range(len(site.inputs))]
        evaluator = EVALUATORS.get(operator.code)
        if evaluator is None or len(operator.outputs) != 1 or not values or any(v is None for v in values):
            return False
        if any(t is None or t.dtype not in ("float16", "float32") for t in site.inputs):
            return False
        target = self.subgraph.tensors[operator.outputs[0]]
        data = evaluator(*values)
        self._bind(target.index, Tensor(next(self.ids), target.name, tuple(data.shape), data.dtype.name, data))
        return True

    def _emit(self, operator: Operator, emit: Emit, site: Site) -> None:
        emitter = Emitter(self.ids, operator.index)
        emitted = emit(site, emitter)
        results = (emitted,) if isinstance(emitted, Tensor) else tuple(emitted)
        where = f"operator {operator.index} {operator.code}"
        if len(results) != len(operator.outputs):
            raise ModelError(f"{where} has {len(operator.outputs)} outputs; {len(results)} were expected")
        self._add(emitter)
        for index, result, declared in zip(operator.outputs, results, site.output_shapes, strict=True):
            target = self.subgraph.tensors[index]
            if declared is not None and declared != result.shape:
                raise ModelError(
                    f"{where} gives shape {list(result.shape)} for its inputs, but the file declares {list(declared)}"
                )
            if result.dtype != view_dtype(target):
                raise ModelError(f"{where} gives {result.dtype} values, but the file declares {target.dtype}")
            self._bind(target.index, self._rounded(operator, self.tensors[result.id], target))

    def _add(self, emitter: Emitter) -> None:
        """Add an operator's nodes. What constants alone decide is computed: later operators may need to know it."""
        self.tensors |= {t.id: t for t in emitter.tensors}
        for node in emitter.nodes:
            output = self.tensors[node.output]
            value = value_of(node, [self.tensors[i] for i in node.inputs], output)
            if value is None:
                self.nodes.append(node)
            else:
                self.tensors[output.id] = replace(output, data=value)

    def _rounded(self, operator: Operator, result: Tensor, target: FileTensor) -> Tensor:
        """``result`` under the file's name, and simulated if the file has it quantized."""
        if not self.simulate or not is_quantized(target) or operator.code in KEEPS_QUANTA:
            return replace(result, name=target.name)
        simulated = Tensor(next(self.ids), target.name, result.shape)
        return self._map(result, simulated, simulate_step(target), operator=operator.index)
