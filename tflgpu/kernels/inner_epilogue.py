"""Epilogue ops between two operators that one kernel computes."""

from __future__ import annotations

from collections.abc import Sequence

from tflgpu.graph.ir import Step, Value


def inner_epilogue(steps: Sequence[Step]) -> list[dict[str, object]]:
    """What templates see of ``steps`` between two operators of one kernel: functions of floats that read no input."""
    return [
        {
            "index": k + 1,
            "function": step.function,
            "operands": [{"value": o.index} for o in step.operands if isinstance(o, Value)],
            "parameters": list(step.parameters),
            "type": "float",
        }
        for k, step in enumerate(steps)
    ]
