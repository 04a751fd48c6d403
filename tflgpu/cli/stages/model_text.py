"""A model as its file declares it: every operator with its tensors and options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.markup import escape

from tflgpu.cli.console import picked
from tflgpu.model.model import FileTensor, Model, Operator, Subgraph
from tflgpu.model.text import decoded


def model_lines(model: Model) -> list[str]:
    """Lines of markup that show the subgraphs of a file."""
    lines: list[str] = []
    for number, subgraph in enumerate(model.subgraphs):
        lines += [""] * (number > 0) + [f"[bold]subgraph {number}[/] {escape(repr(subgraph.name))}"]
        lines += [_boundary("input", subgraph.tensors[t]) for t in subgraph.inputs]
        for operator in subgraph.operators:
            lines += ["", *_operator_lines(operator, subgraph)]
        lines += ["", *(_boundary("output", subgraph.tensors[t]) for t in subgraph.outputs)]
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
        ", ".join(_typed(subgraph.tensors[t]) if t >= 0 else "absent" for t in side)
        for side in (operator.inputs, operator.outputs)
    )
    code = f"[cyan]{escape(operator.code)}[/] version {operator.version}"
    yield f"[dim]{operator.index:>4}[/]   [bold]{made}[/] = {code}({given})"
    options = " ".join(f"{name}={value}" for name, value in _options(operator).items())
    if options:
        yield f"       {escape(options)}"


def _boundary(side: str, tensor: FileTensor) -> str:
    return f"{side} [bold]{_typed(tensor)}[/] {escape(repr(tensor.name))}"


def _typed(tensor: FileTensor) -> str:
    """``t7 1x8x8x32``, with -1 where the file leaves a size open; float32 is understood."""
    shape = "x".join(map(str, tensor.signature or tensor.shape)) or "scalar"
    kind = "const " if tensor.data is not None else "variable " if tensor.is_variable else ""
    quantized = " quantized" if tensor.quantization else ""
    return f"{kind}t{tensor.index} {shape}{'' if tensor.dtype == 'float32' else f' {tensor.dtype}'}{quantized}"
