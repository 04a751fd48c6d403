"""A graph as text, in the manner of compilers: one assignment a node, its fused steps below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from rich.markup import escape

from tflgpu.cli.console import picked
from tflgpu.graph.ir import Graph, Input, Node, Operand, Tensor
from tflgpu.graph.rewrite_rules import Firing


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
