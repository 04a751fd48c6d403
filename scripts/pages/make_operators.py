"""The operators that run on a device: ``python -m scripts.pages.make_operators`` writes docs/reference/operators.md.

Versions, element types and constant inputs are those of the declarations; limits are the sentences that their code can
yield, with … for what differs from model to model.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType

from scripts.pages import litert_operators
from tflgpu.frontend.control_flow.call import COMPOSITE, CONTROL_FLOW
from tflgpu.frontend.resource_variables import VARIABLE_OPERATORS
from tflgpu.ops import REGISTRY, Op, arithmetic, image, lstm, movement
from tflgpu.ops.declaration import ANY, FLOATS, NUMBERS, SIZED, static
from tflgpu.ops.limits import GREATEST_INT, MOST_MADE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "operators.md"

FAMILIES: Mapping[str, ModuleType] = {
    "Arithmetic": arithmetic,
    "Convolutions, pooling and resizing": image,
    "Movement of data": movement,
    "Sequences": lstm,
}

# Ranks of operators whose sentences do not tell them.
RANKS = {
    "BATCH_MATMUL": "2 and more",
    "Convolution2DTransposeBias": "4",
    "CONV_3D": "5",
    "CONV_3D_TRANSPOSE": "5",
    "LSTM": "2",
    "NON_MAX_SUPPRESSION_V4": "2",
    "NON_MAX_SUPPRESSION_V5": "2",
    "REVERSE_SEQUENCE": "2 and more",
    "RFFT2D": "2 and more",
    "TFLite_Detection_PostProcess": "3",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "3",
}

HEAD = """# Supported operators

{count} operators run on the device. `python -m scripts.pages.make_operators` writes this page from their declarations
in `tflgpu/ops/`; `tflgpu inspect MODEL` says the same about your model, operator by operator. What cannot run on the
device runs on LiteRT's CPU interpreter (the extra `fallback`), with a warning that names every reason;
`Options(fallback="forbid")` makes it an `UnsupportedError`.

- **version** is the greatest version of the operator in the file.
- **types** are element types on the device. float32 stands for quantized int8, uint8 and int16 too, and for float16
  weights: see [quantized models](../guide/quantized-models.md). *Numbers* are {numbers};
  *all* are these and {others}.
- **axes** is the rank of the main input. *Any* is tested from 0 to 5. Binary operators broadcast, and axes may be
  negative.
- **constant** names the inputs that must be known when the model is compiled: constants of the file, or computed from
  constants and shapes.
"""

# Operators whose inputs say how large their result is.
TAKE_SIZES = frozenset(
    ("BROADCAST_TO", "FILL", "PAD", "PADV2", "RANGE", "RESHAPE", "SLICE", "STRIDED_SLICE", "TILE", "TOPK_V2")
)

REST = """## State and control flow

| operator | on the device |
|---|---|
| {variables} | resource variables stay in device memory between runs; `reset_state()` puts their first values back |
| DENSIFY | sparse weights are dense since the file was read |
| {control} | unrolled where the condition is known when the model is compiled; else a loop or branch of kernels |
| {composites} | the operators of its decomposition, whatever its name |

Bodies of loops that change shapes go to the CPU, and loops inside of loops that only a run decides, too, unless
`Options(fallback="forbid")` or a missing LiteRT keeps them on the device.

## Sizes that only a run can tell

| operator | on the device, if all of the model can run there |
|---|---|
| WHERE (of bool, float32 or int32) | the result has one row for each true element |
| UNIQUE (of a list) | the result has one element for each value |
| SEGMENT_SUM (of segments that are computed) | the result has one slice for each segment |
| {sized} | where numbers that are computed decide the size of a result that has a known bound |

Elementwise operators, GATHER, GATHER_ND, FULLY_CONNECTED, reductions, SOFTMAX and others go on with such tensors. `run`
gives arrays of LiteRT's sizes. With `Numerics(checks=True)`, or if one operator has to run on the CPU, what reads such
tensors runs on the CPU, too.

## Limits

What else sends an operator to the CPU, in the words of `tflgpu inspect`; … stands for what differs from model to model.
An operator that is in no line has no limit but its types.

| reason | operators |
|---|---|
{limits}

On top of these, a tensor may have at most {elements:,} elements in memory, one that is made of next to nothing, as
by FILL, at most {made:,}. float64 and integers of 64 bits need a device that has them.

## All operators

The operators of the schema, and the custom ones that LiteRT has built in: the greatest version that LiteRT's CPU
interpreter has, for which element types the device runs an operator, and where it runs else. A test runs a model of
each operator that is for the CPU alone, and compares it with LiteRT.

| operator | LiteRT | on the device | else |
|---|---|---|---|
{all_operators}
"""

Function = Callable[..., object]


def _code(function: Function, seen: set[Function]) -> Iterator[ast.AST]:
    """The syntax of a function that yields reasons, and of those that it calls."""
    while isinstance(function, partial):
        function = function.func
    if function in seen:
        return
    seen.add(function)
    names = inspect.getclosurevars(function)
    known = {**names.globals, **names.nonlocals}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            callee = known.get(node.func.id)
            if isinstance(callee, FunctionType) and callee.__module__.startswith("tflgpu.ops") and callee is not static:
                yield from _code(callee, seen)


def reasons_of(op: Op) -> list[str]:
    """The sentences that can say why an operator does not run."""
    found = []
    for node in _code(op.reasons, set()):
        match node:
            case ast.Yield(value=ast.JoinedStr(values=parts)):
                found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in parts))
            case ast.Yield(value=ast.Constant(value=str(text))):
                found.append(text)
    return list(dict.fromkeys(text.replace("… …", "…") for text in found))


def constants_of(op: Op) -> list[str]:
    """The inputs that must be constants, as the calls of ``static`` name them."""
    found = []
    for node in _code(op.reasons, set()):
        match node:
            case ast.Call(func=ast.Name(id=static.__name__), args=[_, _, ast.Constant(value=name)]):
                found.append(str(name))
            case ast.Yield(value=ast.Constant(value=str(text))) if text.endswith("are computed at run time"):
                found.append(text.split()[1])
    return list(dict.fromkeys(found))


def family_of(op: Op) -> str:
    return next(title for title, package in FAMILIES.items() if op.emit.__module__.startswith(package.__name__))


def types_of(op: Op) -> str:
    whole = {FLOATS: "float32", NUMBERS: "numbers", ANY: "all"}
    return whole.get(op.types, ", ".join(sorted(op.types)))


def axes_of(op: Op) -> str:
    if op.code in RANKS:
        return RANKS[op.code]
    sentences = " ".join(reasons_of(op))
    if any(text in sentences for text in ("height, width, channels]", "no four axes", "no height and width")):
        return "4"
    return "1 and more" if "has no axes" in sentences else "any"


def row(op: Op) -> str:
    return f"| {op.code} | {op.versions} | {types_of(op)} | {axes_of(op)} | {', '.join(constants_of(op))} |"


def limits(ops: Sequence[Op]) -> Iterator[str]:
    """A line for each sentence, with all operators that it is about; what many may meet comes first."""
    operators: dict[str, list[str]] = {}
    for op in ops:
        for sentence in reasons_of(op):
            operators.setdefault(sentence, []).append(op.code)
    for sentence, codes in sorted(operators.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"| {sentence} | {', '.join(codes)} |"


def page() -> str:
    """The text of docs/reference/operators.md."""
    ops = sorted(REGISTRY.values(), key=lambda op: op.code.upper())
    own = [op for op in ops if op.emit.__module__.startswith("tflgpu.")]  # packages of others may be installed
    others = ", ".join(sorted(ANY - NUMBERS))
    count = len(own) + len(VARIABLE_OPERATORS) + len(CONTROL_FLOW) + 1  # DENSIFY
    parts = [HEAD.format(count=count, numbers=", ".join(sorted(NUMBERS)), others=others)]
    for title in FAMILIES:
        rows = "\n".join(row(op) for op in own if family_of(op) == title)
        parts.append(f"## {title}\n\n| operator | version | types | axes | constant |\n|---|---|---|---|---|\n{rows}\n")
    control = ", ".join(code for code in CONTROL_FLOW if code != COMPOSITE)
    places = {"variables": ", ".join(VARIABLE_OPERATORS), "control": control, "composites": COMPOSITE}
    parts.append(
        REST.format(
            **places,
            limits="\n".join(limits(own)),
            sized=_sized(),
            elements=GREATEST_INT,
            made=MOST_MADE,
            all_operators=_all_operators(),
        )
    )
    return "\n".join(parts)


def _all_operators() -> str:
    names = {FLOATS: "float32", NUMBERS: "numbers", ANY: "all"}
    return "\n".join(litert_operators.rows({", ".join(sorted(types)): name for types, name in names.items()}))


def _sized() -> str:
    """The operators with a rule for sizes that are computed."""
    return ", ".join(sorted(code for code in SIZED if code in TAKE_SIZES))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
