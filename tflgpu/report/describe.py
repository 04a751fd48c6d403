"""A lowered model -> its :class:`Report`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tflgpu.errors import internal_faults
from tflgpu.frontend.entry_point import EntryPoint
from tflgpu.frontend.frontend import Frontend
from tflgpu.frontend.lowered import KNOWN_CUSTOM, Entry
from tflgpu.frontend.partition import Partition, crossing_bytes, operators_on_cpu
from tflgpu.graph.ir import Graph
from tflgpu.model.model import Model, Subgraph
from tflgpu.model.quantization import QUANTIZED_TYPES, is_quantized
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.report.advice import advise
from tflgpu.report.report import FusionReport, ModelInfo, OperatorReport, Report, SignatureInfo, SubgraphInfo

if TYPE_CHECKING:  # a model without kernels has none
    from tflgpu.plan import Plan


@internal_faults("describing what became of the model")
def make_report(
    frontend: Frontend, partitions: Sequence[Partition], graphs: Sequence[Graph], plans: Sequence[Plan] = ()
) -> Report:
    """Return the report of a model that was cut into partitions.

    Args:
        frontend: The lowered entry point.
        partitions: The cut of its operators between device and CPU.
        graphs: Those of the partitions on the device, optimized and with their conversions to the host's order.
        plans: The plans of the same partitions; empty for a report without kernels.
    """
    subgraph, lowered = frontend.subgraph, frontend.lowered
    inputs, outputs = ([info for _, info in side] for side in frontend.interface())
    report = Report(
        describe(frontend.model, frontend.entry, inputs, outputs),
        _operators(lowered.entries, operators_on_cpu(partitions), _launches(plans)),
        sum(p.on_device for p in partitions),
        crossing_bytes(partitions, subgraph),
        advise(subgraph, lowered, partitions, graphs),
    )
    if not plans:
        return report
    from tflgpu.report.types_of_plans import integer_report, kept_in_float  # without plans no planning is loaded

    return replace(
        report,
        kernels=sum(len(p.kernels) for p in plans),
        arena_bytes=sum(p.arena_bytes for p in plans),
        arena_lower_bound=sum(p.arena_lower_bound for p in plans),
        constant_bytes=sum(p.constant_bytes for p in plans),
        fusions=tuple(FusionReport(*choice) for p in plans for choice in p.fusions.items()),
        floats=kept_in_float(plans),
        integers=integer_report(plans) if _holds_integers(frontend.model.subgraphs[frontend.entry.subgraph]) else None,
    )


def describe(model: Model, entry: EntryPoint, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> ModelInfo:
    """Return what the file declares.

    Args:
        model: The file.
        entry: The entry point that is compiled.
        inputs: Its inputs, with the shapes that the model was compiled for.
        outputs: Its outputs, likewise.
    """
    subgraphs = tuple(SubgraphInfo(s.name, len(s.operators), len(s.tensors)) for s in model.subgraphs)
    signatures = tuple(SignatureInfo(s.key, s.subgraph, tuple(s.inputs), tuple(s.outputs)) for s in model.signatures)
    kind, size = kind_of(model.subgraphs[entry.subgraph]), constant_bytes(model)
    return ModelInfo(kind, model.description, tuple(inputs), tuple(outputs), signatures, subgraphs, size)


def constant_bytes(model: Model) -> int:
    """Return the bytes of weights and other constants, as stored in the file. Buffers that tensors share count once.

    Args:
        model: The file.
    """
    data = [t.data for s in model.subgraphs for t in s.tensors if t.data is not None]
    constants = {d.ctypes.data: d.nbytes for d in data}  # tensors may share a buffer
    return sum(constants.values())


def kind_of(subgraph: Subgraph) -> str:
    """Return how the numbers of a model are stored, in the terms of TensorFlow's converter.

    Args:
        subgraph: The operators and tensors of the entry point.
    """
    weights = {t.dtype for t in subgraph.tensors if t.data is not None and len(t.shape) > 1}
    computed = {i for o in subgraph.operators for i in (*o.inputs, *o.outputs) if i >= 0}
    activations = [t for t in subgraph.tensors if t.index in computed and t.data is None]
    quantized = {t.dtype for t in activations if is_quantized(t)}
    if quantized:
        floats = [t for t in activations if t.dtype == "float32"]
        interface = {*subgraph.inputs, *subgraph.outputs}
        name = "integer " + " and ".join(sorted(quantized))
        if any(t.index not in interface for t in floats):
            return f"{name}, in part float32"
        return f"{name}, float32 at its inputs or outputs" if floats else name
    if any(t.dtype == "int4" for t in subgraph.tensors if t.data is not None and is_quantized(t)):
        return "float32 with int4 weights"
    if _holds_integers(subgraph):
        return "float32 with int8 weights (dynamic range)"
    return "float32 with float16 weights" if "float16" in weights else "float32"


def _holds_integers(subgraph: Subgraph) -> bool:
    """Whether constants or activations are quantized."""
    return any(t.dtype in QUANTIZED_TYPES and is_quantized(t) for t in subgraph.tensors)


def _operators(
    entries: Sequence[Entry], on_cpu: Collection[int], launches: Mapping[int, int]
) -> tuple[OperatorReport, ...]:
    def place(entry: Entry) -> str:
        if entry.custom and entry.reasons and entry.code not in KNOWN_CUSTOM:
            return "unsupported"
        return "cpu" if entry.index in on_cpu else "device"

    return tuple(
        OperatorReport(
            e.index, e.code, e.version, place(e), launches.get(e.index), e.reasons, e.notes, e.inputs, e.outputs
        )
        for e in entries
    )


def _launches(plans: Sequence[Plan]) -> dict[int, int]:
    """Operator -> the number of the launch that computes it."""
    nodes = [planned.node for plan in plans for planned in plan.kernels]
    return {source: number for number, node in enumerate(nodes) for source in node.sources}
