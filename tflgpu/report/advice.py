"""Advice: what the author of a model could change to make it faster on tflgpu.

The topics are those of the GPU delegate's documentation (tensorflow.org/lite/performance/gpu, "Tips and tricks"). All
numbers are counted on the graph that will run, and there is no advice where the gain would be small. The documentation
also advises against images of 3 channels; convolutions here read them without a conversion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

from tflgpu.frontend.lowered import Lowered
from tflgpu.frontend.partition import Partition, crossing_bytes, partition
from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.model.model import Subgraph
from tflgpu.report.report import Advice, counted, size

# Share of what all kernels read and write, and number of elements, below which there is no advice.
NOTABLE = 0.05

NOTABLE_ELEMENTS = 10_000

# Bytes of an input or output, below which there is no advice on its element type.
NOTABLE_BYTES = 16 << 10

# Operators or tensors that one advice names at most.
EXAMPLES = 3

# Operators that only move data. Another way to build or convert the model can often avoid them.
FREE_RESHAPE = "a reshape that keeps the batch and the last axis is free"

DILATION = (
    "SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND around a convolution are a dilation: convert to a dilated convolution"
)

MOVERS = {
    "RESHAPE": FREE_RESHAPE,
    "SQUEEZE": FREE_RESHAPE,
    "EXPAND_DIMS": FREE_RESHAPE,
    "TRANSPOSE": "TRANSPOSE around convolutions comes from a channels-first source: convert it channels-last (NHWC)",
    "SPACE_TO_BATCH_ND": DILATION,
    "BATCH_TO_SPACE_ND": DILATION,
}


def advise(
    subgraph: Subgraph, lowered: Lowered, partitions: Sequence[Partition], graphs: Sequence[Graph]
) -> tuple[Advice, ...]:
    """Return all advice on one entry point of a model.

    Args:
        subgraph: The entry point's operators and tensors in the file.
        lowered: The reasons for which operators run on the CPU.
        partitions: The cut of the operators between device and CPU.
        graphs: Those of the partitions on the device, optimized and with their conversions to the host's order.
    """
    codes = {e.index: e.code for e in lowered.entries}
    return (
        *_split(subgraph, lowered, partitions),
        *_movement(graphs, codes),
        *_lanes(graphs, codes),
        *_float_interface(subgraph, lowered),
        *_free_axes(lowered),
    )


def _split(subgraph: Subgraph, lowered: Lowered, partitions: Sequence[Partition]) -> Iterator[Advice]:
    """Yield the operators that cut the model into several partitions, and what the device would gain without them."""
    refused = {e.index: e.code for e in lowered.entries if e.reasons}
    if not refused or lowered.unknown:
        return
    inputs, outputs = ([t.index for _, t in side] for side in (lowered.inputs, lowered.outputs))
    if not any(p.on_device for p in partitions):
        if lowered.capable and not any(p.on_device for p in partition(subgraph, lowered.capable, inputs, outputs)):
            yield Advice(
                "split",
                tuple(refused),
                f"{_listed(refused)} cannot run on the device, and use values that do not leave an interpreter "
                f"(variables, strings): {len(lowered.capable)} operators that could stay on the CPU with them",
            )
        return

    def cost(codes: Collection[str]) -> tuple[int, int]:
        """Count changes between device and CPU, and bytes that cross, if the device ran the operators of these codes
        too."""
        capable = lowered.capable | {i for i, code in refused.items() if code in codes}
        cut = partition(subgraph, capable, inputs, outputs)
        return _changes(cut), crossing_bytes(cut, subgraph)

    changes, crossing = now = _changes(partitions), crossing_bytes(partitions, subgraph)
    codes = sorted(set(refused.values()))
    best = min(([code] for code in codes), key=cost)
    if cost(best) >= now:  # no single code makes a difference
        best = codes
    left = cost(best)
    rest = f"{counted(left[0], 'change')} and {size(left[1])}" if left[0] else "none, and all of it on the device"
    culprits = {i: code for i, code in refused.items() if code in best}
    yield Advice(
        "split",
        tuple(culprits),
        f"{counted(changes, 'change')} between device and CPU in each run, and {size(crossing)} cross; "
        f"without {_listed(culprits)} it would be {rest}",
    )


def _changes(partitions: Sequence[Partition]) -> int:
    """How often a run changes between device and CPU."""
    return sum(a.on_device != b.on_device for a, b in pairwise(partitions))


def _movement(graphs: Sequence[Graph], codes: Mapping[int, str]) -> Iterator[Advice]:
    """Kernels that only move data, of operators that seem to cost nothing."""
    moved: Counter[str] = Counter()
    kernels: dict[int, str] = {}
    for graph in graphs:
        for node in graph.nodes:
            mover = next((i for i in node.sources if codes[i] in MOVERS), None)
            if node.kind in ("reshape", "rearrange", "strided") and not node.in_place and mover is not None:
                moved[codes[mover]] += _traffic(graph, node)
                kernels[mover] = codes[mover]
    share = moved.total() / max(1, sum(_traffic(g, n) for g in graphs for n in g.nodes))
    if share >= NOTABLE and moved.total() >= NOTABLE_ELEMENTS:
        counts = Counter(kernels.values())
        what = ", ".join(
            f"{counts[code]} {code} ({elements / moved.total():.0%} of it)" for code, elements in moved.most_common()
        )
        hints = "; ".join(dict.fromkeys(MOVERS[code] for code, _ in moved.most_common()))
        yield Advice(
            "movement",
            tuple(sorted(kernels)),
            f"{share:.0%} of what kernels read and write is data that is only moved: {what}; {hints}",
        )


def _lanes(graphs: Sequence[Graph], codes: Mapping[int, str]) -> Iterator[Advice]:
    """Channel counts that are not multiples of 4: unused lanes of the last slice are stored, moved and computed."""
    total = 0
    wasted: Counter[tuple[int, TensorId]] = Counter()
    for number, graph in enumerate(graphs):
        for node in graph.nodes:
            total += _traffic(graph, node)
            for tensor in _touched(graph, node):
                wasted[number, tensor] += _stored(graph, tensor) - graph[tensor].size
    share = wasted.total() / max(1, total)
    if share < NOTABLE or wasted.total() < NOTABLE_ELEMENTS:
        return
    products = [_products(graph, node) for graph in graphs for node in graph.nodes]
    needed, done = (sum(each) for each in zip(*products, strict=True))
    operators: list[int] = []
    examples: list[str] = []
    for (number, tensor), waste in wasted.most_common(EXAMPLES):
        graph = graphs[number]
        producer = graph.producer.get(tensor)
        if not waste:
            break
        channels = Geometry(graph[tensor].shape).channels
        what = f"{_shape(graph[tensor].shape)} has {channels} of {_padded(channels)} channels in use"
        if producer is not None and producer.sources:
            operators.append(producer.sources[-1])
            what = f"operator {producer.sources[-1]} {codes[producer.sources[-1]]}: {what}"
        examples.append(what)
    yield Advice(
        "lanes",
        tuple(operators),
        f"{share:.0%} of what kernels read and write, and {1 - needed / max(1, done):.0%} of what convolutions "
        "multiply, is padding, for channels are stored in fours: "
        f"{', '.join(examples)}; channel counts that are multiples of {LANES} need none",
    )


def _float_interface(subgraph: Subgraph, lowered: Lowered) -> Iterator[Advice]:
    """Float inputs that only QUANTIZE reads, and float outputs that DEQUANTIZE writes."""
    readers, writers = _neighbours(subgraph)
    for side, tensors, neighbours, code in (
        ("input", lowered.inputs, readers, "QUANTIZE"),
        ("output", lowered.outputs, writers, "DEQUANTIZE"),
    ):
        for name, tensor in tensors:
            operators = neighbours.get(tensor.index, ())
            if tensor.dtype != "float32" or tensor.bytes < NOTABLE_BYTES or not operators:
                continue
            if any(subgraph.operators[i].code != code for i in operators):
                continue
            other = subgraph.operators[operators[0]]
            quantized = subgraph.tensors[(other.outputs if side == "input" else other.inputs)[0]]
            yield Advice(
                "float-interface",
                tuple(operators),
                f"{side} {name!r} is float32, and operator {operators[0]} {code} converts it: as {quantized.dtype} "
                f"{size(prod(tensor.shape) * (quantized.bytes // max(1, prod(quantized.shape))))} instead of "
                f"{size(tensor.bytes)} would go between host and device "
                f"(the converter's inference_{side}_type)",
            )


def _free_axes(lowered: Lowered) -> Iterator[Advice]:
    """Yield inputs with sizes that the file leaves open."""
    for name, tensor in lowered.inputs:
        free = [i for i, d in enumerate(tensor.signature) if d == -1]
        if free == [0]:
            yield Advice(
                "free-axes",
                (),
                f"the file leaves the batch of input {name!r} open; it is {tensor.shape[0]} here, and "
                "`Options(shapes=Shapes(batch=N))` compiles for N",
            )
        elif free:
            yield Advice(
                "free-axes",
                (),
                f"the file leaves axes {free} of input {name!r} open; they are {[tensor.shape[i] for i in free]} here, "
                "and `Options(shapes=Shapes(inputs=...))` compiles for others",
            )


def _neighbours(subgraph: Subgraph) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return the operators that read each tensor of the file, and those that write it."""
    readers: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    for operator in subgraph.operators:
        for tensors, found in ((operator.inputs, readers), (operator.outputs, writers)):
            for tensor in set(tensors):
                found.setdefault(tensor, []).append(operator.index)
    return readers, writers


def _touched(graph: Graph, node: Node) -> list[TensorId]:
    """Return the activations that a node's kernel reads and writes; a view has no kernel."""
    if node.in_place:
        return []
    return [*dict.fromkeys(t for t in node.inputs if not graph[t].is_constant), node.output]


def _traffic(graph: Graph, node: Node) -> int:
    """Elements of activations that a node's kernel reads and writes."""
    stored = [_stored(graph, t) for t in _touched(graph, node)]
    if node.kind in ("rearrange", "strided"):  # a slice does not read what it leaves out
        stored[:-1] = [min(each, stored[-1]) for each in stored[:-1]]
    return sum(stored)


def _stored(graph: Graph, tensor: TensorId) -> int:
    """Elements that a tensor takes on the device: without padding if it is in the host's order."""
    geometry = Geometry(graph[tensor].shape)
    on_boundary = tensor in graph.inputs or tensor in graph.outputs
    return graph[tensor].size if on_boundary or geometry.is_linear else geometry.elements


def _products(graph: Graph, node: Node) -> tuple[int, int]:
    """Multiplications by constant weights [out, ..., in]: the number needed, and the number with padding."""
    if node.kind not in ("convolution", "depthwise", "fully_connected") or not graph[node.inputs[1]].is_constant:
        return 0, 0
    weights, output = graph[node.inputs[1]], Geometry(graph[node.output].shape)
    needed = weights.size * output.pixels
    done = needed * _padded(output.channels) // output.channels
    depth = weights.shape[-1]
    if node.kind != "depthwise" and _stored(graph, node.inputs[0]) > graph[node.inputs[0]].size:
        done = done * _padded(depth) // depth
    return needed, done


def _padded(channels: int) -> int:
    return -(-channels // LANES) * LANES


def _listed(operators: Mapping[int, str]) -> str:
    """``2 LSTM (operators 4, 9) and 1 WHERE (operator 12)``."""
    parts = []
    for code, count in Counter(operators.values()).most_common():
        indices = [str(i) for i, c in operators.items() if c == code]
        more = ", ..." if len(indices) > EXAMPLES else ""
        parts.append(f"{count} {code} (operator{'s' * (count > 1)} {', '.join(indices[:EXAMPLES])}{more})")
    return " and ".join(parts)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
