"""Which operators LiteRT has, and where each runs here: the last table of docs/reference/operators.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from ai_edge_litert.interpreter import Interpreter

from tflgpu.frontend.control_flow.call import CONTROL_FLOW
from tflgpu.frontend.resource_variables import VARIABLE_OPERATORS
from tflgpu.model.file_checks import LEAST_CUSTOM
from tflgpu.model.operator_options import BUILTINS
from tflgpu.model.writer import ModelBuilder
from tflgpu.ops import REGISTRY
from tflgpu.ops.declaration import SIZED

GREATEST_VERSION = 20

# How LiteRT says that it does not have a builtin operator in the version that a file asks for.
REFUSAL = "Didn't find op for builtin opcode"

IN_PARTS = "see state and control flow"
WHOLE = "if all of the model can run there"
NOWHERE = "nowhere: LiteRT has no kernel for it"


@cache
def versions_of_litert() -> Mapping[str, int]:
    """The builtin operators that LiteRT's CPU has, and the greatest version of each."""
    found = {}
    for code in BUILTINS:
        if versions := [version for version in range(1, GREATEST_VERSION) if _has(code, version)]:
            found[code] = max(versions)
    return found


def _has(code: str, version: int) -> bool:
    builder = ModelBuilder()
    x, y = builder.input((1,)), builder.tensor((1,))
    builder.op(code, [x], [y], version=version)
    try:
        Interpreter(model_content=builder.finish([y]), num_threads=1)
    except (RuntimeError, ValueError) as refusal:  # of options, which this file does not have, after it was found
        return REFUSAL not in str(refusal)
    return True


def on_device(code: str) -> str:
    """For what an operator runs on the device; empty if it never does."""
    if code in (*CONTROL_FLOW, *VARIABLE_OPERATORS, "DENSIFY"):
        return IN_PARTS
    if code in REGISTRY:
        return ", ".join(sorted(REGISTRY[code].types))
    return WHOLE if code in SIZED else ""


def rows(types: Mapping[str, str]) -> Iterator[str]:
    """A row for each builtin operator of the schema, and for each custom one that LiteRT has.

    types: names of sets of element types, as one sentence has them.
    """
    versions = versions_of_litert()
    for code in (*sorted(BUILTINS), *sorted(LEAST_CUSTOM, key=str.upper)):
        version = str(versions.get(code, "")) if code in BUILTINS else "built in"
        place = on_device(code)
        elsewhere = "CPU" if version else "" if place else NOWHERE
        yield f"| {code} | {version} | {types.get(place, place)} | {elsewhere} |"
