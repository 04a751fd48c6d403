"""Models with one or two fields changed to what a converter would not write, and a hostile hand might."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.safety.mutants.edits import CannotWriteError, Edit, Length, Order, Patch, Table, Value, apply, pack, unpack
from tests.safety.mutants.originals import Original, original

# Numbers that make sizes zero, negative or huge, and indices point to nothing; most numbers of a model are small.
INTEGERS = (-1, 0, 1, 2, 3, 5, 7, 8, 127, 255, -2, -128, 4096, 65535, 2**30, 2**31 - 1, -(2**31))
FLOATS = (0.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"), 3.0, 1e-40)
BYTES = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 4,
    b"\x02\0\0\0",
    b"\xff\xff\x7f\x7f",
    b"\0\0\xc0\x7f",
    b"\0\0\x80\xff",
)
TEXTS = ("", "x", "\x1b[2J", "é" * 40, "TFLite_Detection_PostProcess", "Convolution2DTransposeBias")
TABLES = tuple(
    name
    for union in (schema.BuiltinOptions, schema.BuiltinOptions2)
    for name in vars(union)
    if name.endswith("Options")
)

Fields = list[tuple[str, Any]]  # paths and values


@dataclass(frozen=True)
class Mutant:
    """A model, what was done to it, and inputs for the model that it was."""

    original: Original
    edits: tuple[Edit, ...]
    data: bytes = field(repr=False)

    def __str__(self) -> str:
        return f"{self.original.name}: {'; '.join(map(str, self.edits))}"


def mutant(seed: int, *, shared: bool) -> Mutant:
    """The same for the same seed. shared: as for :func:`original`."""
    random = Random(seed)
    while True:
        sound = original(random, shared=shared)
        model, edits = unpack(sound.data), []
        before = pack(model)
        try:
            for _ in range(random.choice((1, 1, 2))):
                edits.append(random.choice(KINDS)(random, model))
                apply(model, edits[-1])
            data = pack(model)
        except CannotWriteError:
            continue
        if data != before:
            return Mutant(sound, tuple(edits), data)


def _operator_arguments(random: Random, model: Any) -> Edit:
    """Tensors that are absent, swapped, of another operator, out of range, too few or too many."""
    path, graph = _pick(random, _subgraphs(model))
    path, operator = _pick(random, _listed(graph, "operators", f"{path}."))
    side = random.choice(("inputs", "inputs", "outputs"))
    return Edit(f"{path}.{side}", _indices(random, getattr(operator, side), len(graph.tensors)))


def _interface(random: Random, model: Any) -> Edit:
    path, graph = _pick(random, _subgraphs(model))
    side = random.choice(("inputs", "outputs"))
    return Edit(f"{path}.{side}", _indices(random, getattr(graph, side), len(graph.tensors)))


def _shape(random: Random, model: Any) -> Edit:
    path, tensor = _pick(random, _tensors(model))
    name = random.choice(("shape", "shape", "shapeSignature"))
    return Edit(f"{path}.{name}", _list(random, getattr(tensor, name), INTEGERS))


def _type(random: Random, model: Any) -> Edit:
    path, tensor = _pick(random, _tensors(model))
    name = random.choice(("type", "type", "type", "isVariable", "hasRank"))
    return Edit(f"{path}.{name}", random.randint(0, 20) if name == "type" else not getattr(tensor, name))


def _option(random: Random, model: Any) -> Edit:
    """A field to an extreme or to its neighbour, the table of another operator, or none."""
    path, operator = _pick(random, _operators(model))
    options = operator.builtinOptions
    action = random.randint(0, 9)
    if options is None or action == 0:
        name = random.choice(("builtinOptions", "builtinOptions2"))
        return Edit(f"{path}.{name}", Table(random.choice(TABLES)))
    if action == 1 or not vars(options):
        return Edit(f"{path}.builtinOptions", None)
    name = random.choice(sorted(vars(options)))
    return Edit(f"{path}.builtinOptions.{name}", _changed(random, getattr(options, name)))


def _quantization(random: Random, model: Any) -> Edit:
    """Scales of zero, NaN, or of a wrong number, a wrong axis, parameters where there were none."""
    tensors = [(path, tensor) for path, tensor in _tensors(model) if tensor.quantization is not None]
    if not tensors or random.randint(0, 5) == 0:
        path, tensor = _pick(random, _tensors(model))
        if tensor.quantization is None:
            return Edit(f"{path}.quantization", Table("QuantizationParameters"))
        return Edit(f"{path}.quantization", None)
    path, tensor = _pick(random, tensors)
    name = random.choice(("scale", "scale", "zeroPoint", "zeroPoint", "quantizedDimension", "min", "details"))
    old = getattr(tensor.quantization, name)
    value: Value | Table
    if name in ("scale", "min"):
        value = _list(random, old, FLOATS)
    elif name == "details":
        value = Table("CustomQuantization")
    else:
        value = _list(random, old, INTEGERS) if name == "zeroPoint" else random.choice(INTEGERS)
    return Edit(f"{path}.quantization.{name}", value)


def _constant(random: Random, model: Any) -> Edit:
    """Weights, axes, sizes or indices of other values, cut short, too long, or gone."""
    held = [(f"buffers[{i}]", b.data) for i, b in enumerate(model.buffers) if b.data is not None and len(b.data)]
    if not held:
        return _buffer(random, model)
    path, data = _pick(random, held)
    action = random.randint(0, 5)
    if action == 0:
        return Edit(f"{path}.data", random.choice((None, b"")))
    if action == 1:
        size = len(data) + random.choice((-1, 1, -4, 4, 64, -len(data) // 2))
        return Edit(f"{path}.data", Length(max(0, size)))
    begin = 4 * random.randint(0, (len(data) - 1) // 4)
    return Edit(f"{path}.data", Patch(begin, random.choice(BYTES)[: len(data) - begin]))


def _buffer(random: Random, model: Any) -> Edit:
    """A tensor with another one's constant, or one out of range."""
    path, _ = _pick(random, _tensors(model))
    return Edit(f"{path}.buffer", random.choice((*range(len(model.buffers)), 0, 0, len(model.buffers), 2**32 - 1)))


def _code(random: Random, model: Any) -> Edit:
    """Another operator than the arguments are for, another version, a custom name."""
    if random.randint(0, 4) == 0:
        path, operator = _pick(random, _operators(model))
        if operator.customOptions is not None and random.random() < 0.5:
            return Edit(f"{path}.customOptions", Length(random.randint(0, len(operator.customOptions))))
        return Edit(f"{path}.opcodeIndex", random.randint(0, len(model.operatorCodes)))
    path, code = _pick(random, _listed(model, "operatorCodes"))
    name = random.choice(("builtinCode", "builtinCode", "builtinCode", "version", "customCode"))
    if name == "version":
        return Edit(f"{path}.version", random.choice(INTEGERS))
    if name == "customCode":
        return Edit(f"{path}.customCode", random.choice((None, *TEXTS)))
    # The old field of 8 bits counts where it is the larger one.
    if code.deprecatedBuiltinCode and random.randint(0, 3):
        return Edit(f"{path}.deprecatedBuiltinCode", random.randint(0, 127))
    return Edit(f"{path}.builtinCode", random.choice((*range(210), *INTEGERS)))


def _name(random: Random, model: Any) -> Edit:
    """Names, entry points and notes."""
    places: Fields = [("description", model.description)]
    places += [(f"{path}.name", tensor.name) for path, tensor in _tensors(model)]
    for path, signature in _listed(model, "signatureDefs"):
        places += [(f"{path}.subgraphIndex", signature.subgraphIndex), (f"{path}.signatureKey", signature.signatureKey)]
        for side in ("inputs", "outputs"):
            for i, argument in enumerate(getattr(signature, side) or []):
                places += [(f"{path}.{side}[{i}].{name}", getattr(argument, name)) for name in vars(argument)]
    places += [(f"{path}.buffer", metadata.buffer) for path, metadata in _listed(model, "metadata")]
    path, old = _pick(random, places)
    return Edit(path, random.choice((None, *TEXTS) if old is None or isinstance(old, bytes) else INTEGERS))  # fmt: skip


def _order(random: Random, model: Any) -> Edit:
    """A list of tables with two swapped, one left out or one twice."""
    lists = [(name, getattr(model, name)) for name in ("subgraphs", "buffers", "operatorCodes", "signatureDefs")]
    for path, graph in _subgraphs(model):
        lists += 2 * [(f"{path}.{name}", getattr(graph, name)) for name in ("operators", "tensors")]
    path, elements = _pick(random, [(path, old) for path, old in lists if old])
    places = _list(random, list(range(len(elements))), range(len(elements)))
    return Edit(path, Order(tuple(places or ())))


KINDS = (
    *(_operator_arguments, _operator_arguments, _interface, _shape, _shape, _type, _type),
    *(_option, _option, _option, _quantization, _constant, _constant, _buffer, _code, _code, _name, _order),
)


def _changed(random: Random, old: Any) -> Value:
    """Another value of the same type."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, float):
        return random.choice(FLOATS)
    if isinstance(old, int):
        return random.choice((*INTEGERS, old + 1, old - 1, 4, 17))
    return _list(random, old, INTEGERS)


def _indices(random: Random, old: Any, tensors: int) -> list[int] | None:
    """Indices of tensors, most of them valid."""
    return _list(random, old, (*range(tensors), -1, -1, tensors, 2**31 - 1, -2))


def _list(random: Random, old: Any, elements: Sequence[Any]) -> list[Any] | None:
    """``old`` with one element changed, most often; or more, fewer, swapped or none."""
    values = [] if old is None else [x.item() if isinstance(x, np.generic) else x for x in old]
    action = random.randint(0, 7) if values else 7
    place = random.randint(0, len(values) - 1) if values else 0
    if action == 4:
        return values[::-1]
    if action == 5:
        return [*values[:place], *values[place + 1 :]]
    if action == 6:
        return random.choice((None, []))
    if action == 7:
        return [*values[:place], random.choice(elements), *values[place:]]
    return [*values[:place], random.choice(elements), *values[place + 1 :]]


def _pick(random: Random, fields: Fields) -> tuple[str, Any]:
    if not fields:
        raise CannotWriteError("the model has no such field")
    return fields[random.randint(0, len(fields) - 1)]


def _listed(owner: Any, name: str, path: str = "") -> Fields:
    return [(f"{path}{name}[{i}]", element) for i, element in enumerate(getattr(owner, name) or [])]


def _subgraphs(model: Any) -> Fields:
    return _listed(model, "subgraphs")


def _operators(model: Any) -> Fields:
    return [found for path, graph in _subgraphs(model) for found in _listed(graph, "operators", f"{path}.")]


def _tensors(model: Any) -> Fields:
    return [found for path, graph in _subgraphs(model) for found in _listed(graph, "tensors", f"{path}.")]
