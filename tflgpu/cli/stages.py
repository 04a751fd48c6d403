"""Views of each stage of the compiler, as text and as plain data for JSON: for ``tflgpu show``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from rich.markup import escape

from tflgpu.artifact.executable import Binding, Executable
from tflgpu.cli.console import picked
from tflgpu.compiler import lower_file
from tflgpu.frontend.control_flow.pieces import Call, Loop, LoweredPiece, PartedLoop
from tflgpu.frontend.frontend import Frontend
from tflgpu.graph.ir import Graph, Input, Node, Operand, Tensor
from tflgpu.graph.rewrite_rules import Firing
from tflgpu.kernels.kernel import Argument
from tflgpu.model.model import FileTensor, Model, Operator, Subgraph
from tflgpu.model.text import decoded
from tflgpu.options import Options
from tflgpu.plan import Plan, PlannedKernel


@dataclass(frozen=True)
class Part:
    """operators: by index in the file. role: what of a loop or branch it is; else empty. piece: None on the CPU."""

    operators: tuple[int, ...]
    role: str
    piece: LoweredPiece | None


def parts_of(data: bytes, options: Options, missing_types: tuple[str, ...] = ()) -> tuple[list[Part], list[str]]:
    """Return the parts in the order in which they run, and the names of the model's operators.

    Raises UnsupportedError if an operator has nowhere to run.
    """
    frontend = lower_file(data, options, missing_types)
    return list(_parts(frontend)), [entry.code for entry in frontend.lowered.entries]


def _parts(frontend: Frontend) -> Iterator[Part]:
    for partition in frontend.partitions():
        if not partition.on_device:
            yield Part(partition.operators, "", None)
        for role, piece in zip(_roles(frontend.call(partition)), frontend.pieces(partition), strict=False):
            yield Part(partition.operators, role, piece)


def _roles(call: Call | None) -> Sequence[str]:
    if call is None:
        return ("",)
    if isinstance(call, PartedLoop):
        return ("condition", *(f"part {number} of the body" for number in range(1, len(call.pieces))))
    return ("body", "condition") if isinstance(call, Loop) else ("then", "else")


def heading(number: int, part: Part, codes: Sequence[str]) -> str:
    """``part 1 on the CPU: operator 63 TFLite_Detection_PostProcess``."""
    place = "the CPU" if part.piece is None else "the device"
    named = [f"{i} {codes[i]}" for i in part.operators]
    listed = part.piece is None or len(named) == 1
    what = ", ".join(named) if listed else f"{len(named)} operators from {named[0]} to {named[-1]}"
    role = f", {part.role}" if part.role else ""
    return f"[bold]part {number} on {place}{role}:[/] {escape(what)}"


def part_as_dict(part: Part, stage: dict[str, Any] | None) -> dict[str, Any]:
    """stage: what became of its graph; None on the CPU."""
    place = "cpu" if part.piece is None else "device"
    return {"place": place, "role": part.role or None, "operators": part.operators, "stage": stage}


def model_lines(model: Model) -> list[str]:
    """Lines of markup that show the subgraphs of a file."""
    lines: list[str] = []
    for number, subgraph in enumerate(model.subgraphs):
        lines += [""] * (number > 0) + [f"[bold]subgraph {number}[/] {escape(repr(subgraph.name))}"]
        lines += [_file_boundary("input", subgraph.tensors[t]) for t in subgraph.inputs]
        for operator in subgraph.operators:
            lines += ["", *_operator_lines(operator, subgraph)]
        lines += ["", *(_file_boundary("output", subgraph.tensors[t]) for t in subgraph.outputs)]
    return lines


def model_as_dict(model: Model) -> dict[str, Any]:
    """Plain data for JSON; constants are described, their elements left out."""
    return {
        "description": model.description,
        "signatures": [
            {"key": s.key, "subgraph": s.subgraph, "inputs": dict(s.inputs), "outputs": dict(s.outputs)}
            for s in model.signatures
        ],
        "subgraphs": [
            {
                **picked(subgraph, "name", "inputs", "outputs"),
                "tensors": [_tensor_as_dict(t) for t in subgraph.tensors],
                "operators": [_operator_as_dict(o) for o in subgraph.operators],
            }
            for subgraph in model.subgraphs
        ],
    }


def _tensor_as_dict(tensor: FileTensor) -> dict[str, Any]:
    kind = {"constant": tensor.data is not None, "variable": tensor.is_variable}
    return picked(tensor, "name", "shape", "signature", "dtype") | kind


def _operator_as_dict(operator: Operator) -> dict[str, Any]:
    return picked(operator, "code", "version", "inputs", "outputs") | {"options": _options(operator)}


def _options(operator: Operator) -> Mapping[str, Any]:
    """Return the options as JSON takes them: texts for bytes, in hexadecimal those of a custom operator."""
    if operator.is_custom:
        return {"custom_options": operator.custom_options.hex()}
    return {k: decoded(v) if isinstance(v, bytes) else v for k, v in operator.options.items()}


def _operator_lines(operator: Operator, subgraph: Subgraph) -> Iterator[str]:
    given, made = (
        ", ".join(_file_typed(subgraph.tensors[t]) if t >= 0 else "absent" for t in side)
        for side in (operator.inputs, operator.outputs)
    )
    code = f"[cyan]{escape(operator.code)}[/] version {operator.version}"
    yield f"[dim]{operator.index:>4}[/]   [bold]{made}[/] = {code}({given})"
    options = " ".join(f"{name}={value}" for name, value in _options(operator).items())
    if options:
        yield f"       {escape(options)}"


def _file_boundary(side: str, tensor: FileTensor) -> str:
    return f"{side} [bold]{_file_typed(tensor)}[/] {escape(repr(tensor.name))}"


def _file_typed(tensor: FileTensor) -> str:
    """``t7 1x8x8x32``, with -1 where the file leaves a size open; float32 is understood."""
    shape = "x".join(map(str, tensor.signature or tensor.shape)) or "scalar"
    kind = "const " if tensor.data is not None else "variable " if tensor.is_variable else ""
    quantized = " quantized" if tensor.quantization else ""
    return f"{kind}t{tensor.index} {shape}{'' if tensor.dtype == 'float32' else f' {tensor.dtype}'}{quantized}"


def firing_lines(fired: Sequence[Firing], codes: Sequence[str]) -> list[str]:
    """Return a line for each rule that a pass has applied, with the operators of what it made."""
    return [
        f"[dim]applied {each.rule}: {escape(_operators(each.sources, codes) or 'no operator')}[/]" for each in fired
    ]


def graph_lines(graph: Graph, codes: Sequence[str]) -> list[str]:
    """``codes`` are the names of the model's operators."""
    lines = [_boundary("input", graph[t]) for t in graph.inputs]
    lines += [_boundary("state", graph[s.read]) for s in graph.states]
    for number, node in enumerate(graph.nodes):
        lines += ["", *_node_lines(number, node, graph), f"       [dim]from {escape(origins(node, codes))}[/]"]
    lines += ["", *(_boundary("output", graph[t]) for t in graph.outputs)]
    return [*lines, *(_boundary("next state", graph[s.written]) for s in graph.states)]


def graph_as_dict(graph: Graph) -> dict[str, Any]:
    """Plain data for JSON; constants are described, their elements left out."""
    return {
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "states": [picked(s, "name", "read", "written") for s in graph.states],
        "tensors": {
            t.id: picked(t, "name", "shape", "dtype") | {"constant": t.is_constant} for t in graph.tensors.values()
        },
        "nodes": [node_as_dict(n) for n in graph.nodes],
    }


def node_as_dict(node: Node) -> dict[str, Any]:
    """Plain data for JSON. Step k may read values ``v0`` (what the kernel computes) to ``vk``, and ``inputs[i]``."""
    return {
        **picked(node, "kind", "inputs", "output", "side_outputs", "in_place"),
        "attributes": _attributes_as_dict(node.attributes),
        "steps": [
            {
                "function": s.function,
                "operands": [f"inputs[{o.index}]" if isinstance(o, Input) else f"v{o.index}" for o in s.operands],
                "parameters": s.parameters,
            }
            for s in node.epilogue
        ],
        "operators": node.sources,
    }


def _attributes_as_dict(attributes: Any) -> dict[str, Any] | None:
    return None if attributes is None else asdict(attributes)


def origins(node: Node, codes: Sequence[str]) -> str:
    """Return the model's operators that ``node`` computes: ``"3 CONV_2D, 6 ADD"``."""
    return _operators(node.sources, codes) or "no operator: a layout conversion"


def _operators(sources: Sequence[int], codes: Sequence[str]) -> str:
    return ", ".join(f"{i} {codes[i]}" for i in sources)


def typed(tensor: Tensor) -> str:
    """``t7 1x8x8x32``, or ``const 32x3x3x1``; float32 is understood."""
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    dtype = "" if tensor.dtype == "float32" else f" {tensor.dtype}"
    return f"{_reference(tensor)} {shape}{dtype}"


def _reference(tensor: Tensor) -> str:
    return "const" if tensor.is_constant else f"t{tensor.id}"


def _boundary(side: str, tensor: Tensor) -> str:
    return f"{side} [bold]{typed(tensor)}[/] {escape(repr(tensor.name))}"


def _node_lines(number: int, node: Node, graph: Graph) -> Iterator[str]:
    own = ", ".join(typed(graph[t]) for i, t in enumerate(node.inputs) if i not in node.epilogue_inputs)
    results = ", ".join(typed(graph[t]) for t in node.outputs)
    how = ", in place" if node.in_place else ""
    yield f"[dim]{number:>4}[/]   [bold]{results}[/] = [cyan]{node.kind}[/]({own}){how}"
    if node.attributes is not None:
        yield f"       {escape(_attributes(node.attributes))}"
    for k, step in enumerate(node.epilogue):
        operands = [_operand(o, node, graph) for o in step.operands] + [f"{p:g}" for p in step.parameters]
        yield f"       v{k + 1} = [cyan]{step.function}[/]({', '.join(operands)})"


def _operand(operand: Operand, node: Node, graph: Graph) -> str:
    if not isinstance(operand, Input):
        return f"v{operand.index}"
    tensor = graph[node.inputs[operand.index]]
    return typed(tensor) if tensor.is_constant else _reference(tensor)


def _attributes(attributes: Any) -> str:
    """``window(kernel=3,3 stride=1,1) groups=1``."""
    values = {f.name: getattr(attributes, f.name) for f in fields(attributes)}
    return " ".join(f"{name}{_value(value)}" for name, value in values.items() if value != ())


def _value(value: Any) -> str:
    if is_dataclass(value):
        return f"({_attributes(value)})"
    if isinstance(value, tuple):
        return f"={','.join(map(str, value))}"
    return f"={value:g}" if isinstance(value, float) else f"={value}"


def plan_lines(plan: Plan, codes: Sequence[str]) -> list[str]:
    """``codes`` are the names of the model's operators."""
    target = plan.target
    lines = [
        f"[bold]target[/]     {target.family} kernels, {target.compute_units} compute units, {target.storage} storage",
        f"[bold]arena[/]      {plan.arena_bytes:,} bytes (lower bound {plan.arena_lower_bound:,})",
        f"[bold]constants[/]  {plan.constant_bytes:,} bytes",
    ]
    for number, planned in enumerate(plan.kernels):
        lines += ["", *_kernel_lines(number, planned, plan)]
        lines.append(f"       [dim]from {escape(origins(planned.node, codes))}[/]")
    return lines


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """Plain data for JSON."""
    return {
        "target": asdict(plan.target),
        **picked(plan, "arena_bytes", "arena_lower_bound", "constant_bytes"),
        "kernels": [_kernel_as_dict(k, plan) for k in plan.kernels],
    }


def _kernel_as_dict(planned: PlannedKernel, plan: Plan) -> dict[str, Any]:
    kernel = planned.kernel
    return {
        **picked(kernel, "template", "tiles", "local_size"),
        "scratch_bytes": kernel.workspace * 16,
        "macs": kernel.macs,
        "node": node_as_dict(planned.node),
        "arguments": [
            {
                **picked(a, "name", "type", "tensor"),
                "place": _place(a, plan),
                "arena_offset": None if a.tensor is None else plan.offsets.get(a.tensor),
                "bytes": _size(a, plan),
                "written": a.written,
            }
            for a in planned.arguments
        ],
    }


def _kernel_lines(number: int, planned: PlannedKernel, plan: Plan) -> Iterator[str]:
    kernel = planned.kernel
    workspace = f", {kernel.workspace * 16:,} bytes of local memory" if kernel.workspace else ""
    macs = f", {kernel.macs:,} multiply-adds" if kernel.macs else ""
    items = "work-item" if kernel.local_size == 1 else "work-items"
    grid = f"{kernel.tiles:,} tiles of {kernel.local_size} {items}"
    yield f"[dim]{number:>4}[/]   [cyan]{kernel.template}[/]  {grid}{workspace}{macs}"
    for a in planned.arguments:
        what = "" if a.tensor is None else typed(plan.graph[a.tensor])
        yield f"       {a.name:<9} {a.type:<5}  {what:<20} {_size(a, plan):>11,} bytes  {_where(a, plan)}"


def _where(argument: Argument, plan: Plan) -> str:
    place = _place(argument, plan)
    return place if argument.tensor is None or place != "arena" else f"arena + {plan.offsets[argument.tensor]:,}"


def _place(argument: Argument, plan: Plan) -> str:
    return "constant" if argument.tensor is None else plan.place(argument.tensor)


def _size(argument: Argument, plan: Plan) -> int:
    return argument.bytes if argument.tensor is None else plan.storage[argument.tensor].bytes


def executable_lines(executable: Executable) -> list[str]:
    """Lines of markup that show buffers, launches and bindings."""
    lines = [
        f"[bold]buffer {number}[/]  {buffer.bytes:,} bytes{' of constants' if buffer.data is not None else ''}"
        for number, buffer in enumerate(executable.buffers)
    ]
    lines += ["", *(_binding_line("input", binding) for binding in executable.inputs)]
    for number, launch in enumerate(executable.launches):
        grid = f"{launch.groups:,} x {launch.local_size} work-items, barrier interval {launch.interval}"
        lines += ["", f"[dim]{number:>4}[/]   [cyan]{launch.function}[/]  {grid}"]
        lines.append("       " + ", ".join(f"buffer {slot.buffer} + {slot.offset:,}" for slot in launch.arguments))
    return [*lines, "", *(_binding_line("output", binding) for binding in executable.outputs)]


def executable_as_dict(executable: Executable) -> dict[str, Any]:
    """Plain data for JSON; constants are described, their bytes left out."""
    return {
        "buffers": [{"bytes": b.bytes, "constant": b.data is not None} for b in executable.buffers],
        "launches": [
            {
                **picked(launch, "function", "groups", "local_size"),
                "arguments": [{"buffer": slot.buffer, "offset": slot.offset} for slot in launch.arguments],
                **picked(launch, "operators", "macs", "bytes"),
                "level": launch.interval,
            }
            for launch in executable.launches
        ],
        "inputs": [_binding_as_dict(binding) for binding in executable.inputs],
        "outputs": [_binding_as_dict(binding) for binding in executable.outputs],
    }


def _binding_as_dict(binding: Binding) -> dict[str, Any]:
    return picked(binding, "buffer", "offset", "shape", "element", "dtype")


def _binding_line(side: str, binding: Binding) -> str:
    shape = "x".join(map(str, binding.shape)) or "scalar"
    place = f"buffer {binding.buffer} + {binding.offset:,} bytes"
    return f"{side} [bold]{shape} {binding.dtype}[/]  {place}, as {binding.element}"
