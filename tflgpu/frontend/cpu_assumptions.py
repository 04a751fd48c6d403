"""Operators that LiteRT has to run, or must not, by what only lowering knows: shapes, values, complex numbers, tables.

LiteRT fills a hash table once, and ignores later values. So the pieces that it runs may have a table of their own each
if the same constants fill it before every look-up. Any other table depends on who came first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import gt

from tflgpu.frontend.lowered import Entry
from tflgpu.graph.ir import Tensor
from tflgpu.model.file_checks import called_by
from tflgpu.model.model import FileTensor, Model, Operator, Subgraph
from tflgpu.model.quantization import LEAST_SCALE, is_quantized
from tflgpu.ops.declaration import COMPLEX
from tflgpu.ops.image.window import VALID, span

BLOCKS = ("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND")

# Inputs whose shapes decide where a window fits: the image, and weights where options do not have the kernel's size.
OPERANDS = {"AVERAGE_POOL_2D": 1, "CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "L2_POOL_2D": 1, "MAX_POOL_2D": 1}

# LiteRT prepares a subgraph anew for each operator that calls it: branches within branches double with every level.
MOST_PREPARED = 1 << 18


def cpu_obstacles(
    operator: Operator, inputs: Sequence[Tensor | None], subgraph: Subgraph, subgraphs: Sequence[Subgraph]
) -> Iterator[str]:
    """Yield why LiteRT must not run an operator that the device cannot run.

    Args:
        operator: The operator.
        inputs: None where absent or not yet known.
        subgraph: The operator's own.
        subgraphs: Those of the file, which it may call.
    """
    of_values = chain(_divisors(operator, inputs), _window_too_large(operator, inputs))
    of_scales = chain(_scales(operator, subgraph, subgraphs), block_obstacles(operator, subgraph))
    for obstacle in chain(of_values, of_scales, _preparations(operator, subgraphs)):
        yield f"operator {operator.index} {operator.code}: {obstacle}"


def _scales(operator: Operator, subgraph: Subgraph, subgraphs: Sequence[Subgraph]) -> Iterator[str]:
    """LiteRT's kernels divide by the scale, and make indices of the result."""
    tensors = [subgraph.tensors[t] for t in (*operator.inputs, *operator.outputs) if t >= 0]
    tensors += [t for called in subgraphs for t in called.tensors] if called_by(operator) else []
    for tensor in tensors:
        if tensor.data is None and tensor.quantization is not None and is_quantized(tensor):
            scale = min(tensor.quantization.scale)
            if scale < LEAST_SCALE:
                yield f"LiteRT's kernels would divide by {scale:g}, the scale of {tensor.name!r}"


def block_obstacles(operator: Operator, subgraph: Subgraph) -> Iterator[str]:
    """LiteRT's kernels give other numbers where weights have scales for blocks, and say nothing."""
    for tensor in (subgraph.tensors[t] for t in operator.inputs if t >= 0):
        if tensor.blocks is not None:
            yield f"LiteRT computes wrongly with the blocks of scales that {tensor.name!r} has"


def _preparations(operator: Operator, subgraphs: Sequence[Subgraph]) -> Iterator[str]:
    counts: dict[int, int] = {}  # operators that are prepared for a call of a subgraph

    def prepared(caller: Operator) -> int:
        for number in called_by(caller):
            if number not in counts:
                counts[number] = sum(map(prepared, subgraphs[number].operators))
        return 1 + sum(counts[number] for number in {*called_by(caller)})

    if (total := prepared(operator)) > MOST_PREPARED:
        yield f"LiteRT would prepare {total} operators for the calls in it; at most {MOST_PREPARED} are prepared"


def _divisors(operator: Operator, inputs: Sequence[Tensor | None]) -> Iterator[str]:
    if operator.code == "STRIDED_SLICE" and inputs[3] is not None and inputs[3].data is None:
        yield "its strides are computed at run time, and LiteRT goes on without end at a stride of 0"
    if operator.code in BLOCKS and inputs[1] is not None and inputs[1].data is None:
        yield "its block is computed at run time, and LiteRT divides by one of 0"


def _window_too_large(operator: Operator, inputs: Sequence[Tensor | None]) -> Iterator[str]:
    options = operator.options
    operands = inputs[: OPERANDS.get(operator.code, 0)]
    if not operands or options.get("padding") != VALID:
        return
    shapes = [tensor.shape for tensor in operands if tensor is not None and len(tensor.shape) == 4]
    if len(shapes) != len(operands):
        return
    image, *weights = (shape[1:3] for shape in shapes)
    kernel = weights[0] if weights else (options.get("filter_height", 0), options.get("filter_width", 0))
    dilation = options.get("dilation_h_factor", 1), options.get("dilation_w_factor", 1)
    covered = list(map(span, kernel, dilation))
    if any(map(gt, covered, image)):
        yield f"LiteRT's kernels differ in what a window of {covered} gives in {list(image)} pixels"


CROSSING = "its complex numbers come from the CPU or go there"


def keep_on_one_side(
    entries: Sequence[Entry], operators: Sequence[Operator], tensors: Sequence[FileTensor], outputs: Collection[int]
) -> tuple[Entry, ...]:
    """Return the entries with a reason for each operator that only its complex numbers keep from the device.

    Args:
        entries: The operators, with the reasons that are known.
        operators: Those of the entries.
        tensors: All tensors of the subgraph.
        outputs: Tensors that leave the device.
    """
    numbers = {t.index for t in tensors if t.dtype == COMPLEX}
    refused = {entry.index for entry in entries if entry.reasons}
    while found := set(_crossing(operators, numbers, outputs, refused)) if numbers else set[int]():
        refused |= found
    return tuple(replace(e, reasons=(CROSSING,)) if e.index in refused and not e.reasons else e for e in entries)


def _crossing(
    operators: Sequence[Operator], numbers: Collection[int], outputs: Collection[int], refused: Collection[int]
) -> Iterator[int]:
    on_cpu = [o for o in operators if o.index in refused]
    read, written = {*outputs, *(t for o in on_cpu for t in o.inputs)}, {t for o in on_cpu for t in o.outputs}
    for operator in operators:
        given, taken = read.intersection(operator.outputs), written.intersection(operator.inputs)
        if operator.index not in refused and not (given | taken).isdisjoint(numbers):
            yield operator.index


TABLE_OPERATORS = ("HASHTABLE", "HASHTABLE_IMPORT", "HASHTABLE_FIND", "HASHTABLE_SIZE")


@dataclass
class HashTable:
    """Facts about a table from all of the file.

    entries: the subgraphs of signatures that use it. contents: what fills it. fault: why one table must serve all.
    """

    entries: set[int] = field(default_factory=set)
    contents: set[tuple[bytes, bytes]] = field(default_factory=set)
    fault: str = ""


def hash_tables(model: Model, entries: Collection[int]) -> Mapping[int, HashTable]:
    """Return the tables of a file by their number.

    Args:
        model: The file.
        entries: The subgraphs of its signatures.
    """
    search = _Search(model)
    for entry in entries:
        search.follow(entry, entry, set(), is_certain=True)
    for table in search.tables.values():
        if len(table.contents) > 1:
            table.fault = "it is filled with several contents, of which LiteRT keeps the first"
        table.fault = table.fault or search.fault
    return search.tables


class _Search:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.tables: dict[int, HashTable] = {}
        self.fault = ""  # of all tables
        self._seen: set[tuple[int, int, frozenset[int], bool]] = set()

    def follow(self, entry: int, number: int, filled: set[int], *, is_certain: bool) -> None:
        """Note what a subgraph does with tables.

        Args:
            entry: The subgraph of the signature that is run.
            number: Of the subgraph.
            filled: The tables that have values by now; gets more.
            is_certain: Whether each run of the signature comes here.
        """
        place = entry, number, frozenset(filled), is_certain
        if place in self._seen:
            return
        self._seen.add(place)
        handles: dict[int, int] = {}
        for operator in self._model.subgraphs[number].operators:
            if operator.code == "HASHTABLE":
                handles[operator.outputs[0]] = operator.options.get("table_id", 0)
            elif operator.code in TABLE_OPERATORS:
                self._use(entry, number, operator, handles.get(operator.inputs[0]), filled, is_certain)
            elif operator.code == "CALL_ONCE":
                for called in called_by(operator):
                    self.follow(entry, called, filled, is_certain=is_certain)
            else:
                for called in called_by(operator):
                    self.follow(entry, called, set(filled), is_certain=False)

    def _use(
        self, entry: int, number: int, operator: Operator, key: int | None, filled: set[int], is_certain: bool
    ) -> None:
        if key is None:
            self.fault = "the handle of a table does not come from a HASHTABLE that is known"
            return
        table = self.tables.setdefault(key, HashTable())
        table.entries.add(entry)
        if operator.code != "HASHTABLE_IMPORT":
            if key not in filled:
                table.fault = "a signature looks something up before it fills it"
            return
        keys, values = (self._model.subgraphs[number].tensors[t] for t in operator.inputs[1:3])
        if keys.data is None or values.data is None:
            table.fault = "what fills it is no constant"
        elif not is_certain:
            table.fault = "a loop or branch fills it"
        else:
            table.contents.add((_content(keys), _content(values)))
        filled.add(key)


def _content(tensor: FileTensor) -> bytes:
    return b"" if tensor.data is None else tensor.data.tobytes()
