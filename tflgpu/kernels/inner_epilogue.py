"""Epilogue ops between two operators that one kernel computes."""

from __future__ import annotations

from collections.abc import Sequence

from tflgpu.graph.ir import EpilogueOp, Value


def inner_epilogue(epilogue: Sequence[EpilogueOp]) -> list[dict[str, object]]:
    """What templates see of ``steps`` between two operators of one kernel: functions of floats that read no input."""
    return [
        {
            "index": k + 1,
            "function": op.function,
            "operands": [{"value": o.index} for o in op.operands if isinstance(o, Value)],
            "parameters": list(op.parameters),
            "type": "float",
        }
        for k, op in enumerate(epilogue)
    ]
