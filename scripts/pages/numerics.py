"""The content of the page of corner cases: small models with inputs at the edge of their types, and who runs them."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

import tflgpu
from tflgpu.model.writer import ModelBuilder
from tflgpu.options import KernelFamily

Array = NDArray[Any]

NAN, INF, LEAST = float("nan"), float("inf"), -(2**31)
NONE = {"fused_activation_function": "NONE"}

KERNELS = {
    "plain": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "reference": OpResolverType.BUILTIN_REF,
    "default": OpResolverType.AUTO,
}


@dataclass(frozen=True)
class Corner:
    """One operator, its run-time inputs, and the constants that follow these.

    shape: of the result, by default the first input's. dtype: of the result, by default that of the first input.
    """

    code: str
    inputs: tuple[Array, ...]
    options: Mapping[str, object] | None = None
    constants: tuple[Any, ...] = ()
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    said: str = ""
    """The page's words for the inputs, by default their values."""

    @property
    def model(self) -> bytes:
        b = ModelBuilder()
        operands = [b.input(x.shape, x.dtype.name) for x in self.inputs] + [b.constant(c) for c in self.constants]
        first = self.inputs[0]
        shape = first.shape if self.shape is None else self.shape
        outputs = [b.tensor(shape, self.dtype or first.dtype.name)]
        if self.code == "TOPK_V2":
            outputs.append(b.tensor(shape, "int32"))
        b.op(self.code, operands, outputs, self.options)
        return b.finish(outputs)

    @property
    def description(self) -> str:
        return self.said or "; ".join(listed(x) for x in self.inputs)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a library for a corner: its results, or why there are none."""

    results: tuple[Array, ...] = ()
    refusal: str = ""

    def equals(self, other: Outcome) -> bool:
        """Whether both gave the same numbers, NaN included and up to rounding, or both none."""
        if self.refusal or other.refusal:
            return bool(self.refusal) == bool(other.refusal)
        pairs = zip(self.results, other.results, strict=True)
        return all(a.shape == b.shape and np.allclose(a, b, 1e-5, 1e-37, equal_nan=True) for a, b in pairs)

    def __str__(self) -> str:
        return self.refusal or "; ".join(map(listed, self.results))


def listed(x: Array) -> str:
    """The numbers of an array, as short as they can be told."""
    return ", ".join(f"{v:.4g}" if x.dtype.kind == "f" else str(v) for v in x.reshape(-1).tolist())


def run_litert(corners: Sequence[Corner], kernels: str) -> list[Outcome]:
    """In a process of its own: LiteRT divides integers without looking, and some processors end the process for it."""
    outcomes = list[Outcome]()
    while len(outcomes) < len(corners):
        outcomes += _interpret_apart(corners[len(outcomes) :], kernels)
    return outcomes


def _interpret_apart(corners: Sequence[Corner], kernels: str) -> Iterator[Outcome]:
    """The outcomes up to the first corner that ends the process, that one included."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGFPE, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where handlers of crashes write
        try:
            for corner in corners:
                os.write(writer, pickle.dumps(_interpret(corner, kernels)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        for _ in corners:
            try:
                yield pickle.load(pipe)
            except EOFError:
                yield Outcome(refusal="ends the process")
                break
    os.waitpid(child, 0)


def _interpret(corner: Corner, kernels: str) -> Outcome:
    try:
        interpreter = Interpreter(
            model_content=corner.model, num_threads=1, experimental_op_resolver_type=KERNELS[kernels]
        )
        interpreter.allocate_tensors()
        for detail, value in zip(interpreter.get_input_details(), corner.inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
    except (RuntimeError, ValueError):
        return Outcome(refusal="an error")
    return Outcome(tuple(interpreter.get_tensor(d["index"]).copy() for d in interpreter.get_output_details()))


def run_tflgpu(corner: Corner, device: str | int = 0, kernels: KernelFamily = "gpu", checks: bool = False) -> Outcome:
    options = tflgpu.Options(
        device=device,
        execution=tflgpu.Execution(kernels=kernels),
        numerics=tflgpu.Numerics(checks=checks),
        fallback="forbid",
        cache="off",
    )
    try:
        model = tflgpu.compile(corner.model, options)
    except tflgpu.UnsupportedError:
        return Outcome(refusal="refused")
    try:
        outputs = model.run(list(corner.inputs))
    except ValueError:
        return Outcome(refusal="an error")
    return Outcome(tuple(map(np.asarray, outputs.values())))


def f(*values: float) -> Array:
    return np.array(values, np.float32)


def i(*values: object) -> Array:
    return np.array(values, np.int32)


UNARY = (
    *("RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH", "ELU", "HARD_SWISH", "GELU", "LEAKY_RELU", "EXP", "LOG"),
    *("SQRT", "RSQRT", "SQUARE", "ABS", "NEG", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "SIGN"),
)

PAIRS = {
    "ADD": (f(INF, NAN, 3e38), f(-INF, 1, 3e38)),
    "SUB": (f(INF, NAN, -3e38), f(INF, 1, 3e38)),
    "MUL": (f(0, NAN, 1e30), f(INF, 0, 1e30)),
    "DIV": (f(0, 1, -1), f(0, 0, 0)),
}


# Errors that no kernel can report, but a check can.
UNCHECKED = "; an error with `Numerics(checks=True)`"

# Where LiteRT's plain and reference kernels agree and tflgpu gives something else: why, by operator.
EXPLAINED = {
    **dict.fromkeys(
        PAIRS,
        "the plain kernels clamp to finite numbers, the default ones do not",
    ),
    "FLOOR_DIV": "the quotient is NaN, of integers the dividend" + UNCHECKED,
    "FLOOR_MOD": "the remainder is that of a division by 1" + UNCHECKED,
    "POW": "LiteRT computes in double and converts what 32 bits cannot hold, on the device products wrap around; "
    "a negative exponent becomes 0" + UNCHECKED,
    "MAX_POOL_2D": "LiteRT begins with the lowest finite number, tflgpu with minus infinity",
    "REDUCE_MAX": "a reduction begins with minus infinity, and NaN is no maximum",
    "REDUCE_MIN": "a reduction begins with infinity, and NaN is no minimum",
    **dict.fromkeys(
        ("GATHER", "GATHER_ND", "EMBEDDING_LOOKUP", "SLICE"), "the index becomes the nearest in range" + UNCHECKED
    ),
}
NOTHING_BUT_NAN = "MAX_POOL_2D", "REDUCE_MAX", "REDUCE_MIN"  # differ where there is nothing else

# The same, where the operator computes with integers.
EXPLAINED_INTEGERS = {
    "DIV": "the least number over -1 wraps around; the divisor 0 becomes 1" + UNCHECKED,
}


def explanation(corner: Corner) -> str:
    """Why tflgpu differs from LiteRT where it is known to; empty if it should not."""
    integers = EXPLAINED_INTEGERS.get(corner.code) if corner.inputs[0].dtype.kind == "i" else None
    if corner.inputs[0].dtype.kind == "i" and corner.code in PAIRS:
        return integers or ""
    if corner.code in NOTHING_BUT_NAN and not np.isnan(corner.inputs[0]).all():
        return ""
    return EXPLAINED.get(corner.code, "")


TABLE = f(1, 2, 3, 4).reshape(2, 2)


def sections() -> Mapping[str, Sequence[Corner]]:
    """The corners by the title of their section."""
    types = "int8", "uint8", "int16", "uint16", "int32", "bool"
    edges = f(NAN, INF, -INF, 300, -300, 3e9, -3e9, -0.9)
    row = f(1, NAN, 3, -INF, 2).reshape(1, -1)
    images = f(1, NAN, 3, 2), f(NAN, 1, 3, 2), f(1, 3, 2, NAN), f(NAN, NAN, NAN, NAN)
    reductions = "SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"
    comparisons = "EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"
    pool = {"padding": "VALID", "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}
    return {
        "Functions of one number": [
            Corner(code, (f(NAN, INF, -INF, -1, 0, 1e-40),), {"alpha": 0.5} if code == "LEAKY_RELU" else None)
            for code in UNARY
        ],
        "Functions of two numbers": [
            *(Corner(code, pair, NONE) for code, pair in PAIRS.items()),
            Corner("ADD", (f(1e-40), f(1e-41)), NONE),
            Corner("MUL", (f(1e-20), f(1e-20)), NONE),
            *(Corner(code, (f(NAN, 1), f(1, NAN))) for code in ("MAXIMUM", "MINIMUM")),
            Corner("SQUARED_DIFFERENCE", (f(INF, 1e30), f(INF, -1e30))),
            Corner("POW", (f(0, NAN, -8, INF), f(0, 0, 0.5, -1))),
            Corner("FLOOR_DIV", (f(1, 0, NAN), f(0, 0, 1))),
            Corner("FLOOR_MOD", (f(1, INF, 1, NAN), f(0, 2, INF, 1))),
            Corner("ATAN2", (f(0, INF, NAN), f(0, INF, 1))),
            Corner("PRELU", (f(NAN, -INF, -1),), None, (f(0.5, 0, NAN),)),
            *(Corner(code, (f(NAN, 1, INF), f(NAN, NAN, INF)), dtype="bool") for code in comparisons),
        ],
        "Integers": [
            *(Corner(code, (i(2**31 - 1, LEAST), i(1, 1)), NONE) for code in ("ADD", "SUB", "MUL")),
            Corner("MUL", (i(2**16, LEAST), i(2**16, -1)), NONE),
            Corner("DIV", (i(1), i(0)), NONE),
            Corner("DIV", (i(LEAST), i(-1)), NONE),
            Corner("FLOOR_DIV", (i(1), i(0))),
            Corner("FLOOR_DIV", (i(LEAST), i(-1))),
            Corner("FLOOR_MOD", (i(1), i(0))),
            Corner("FLOOR_MOD", (i(LEAST), i(-1))),
            *(Corner(code, (i(LEAST),)) for code in ("NEG", "ABS")),
            Corner("SQUARED_DIFFERENCE", (i(2**16), i(0))),
            Corner("POW", (i(2, 3), i(33, 40))),
            Corner("POW", (i(2), i(-1))),
            Corner("SUM", (i(2**31 - 1, 1),), None, (i(0),), ()),
            Corner("CUMSUM", (i(2**31 - 1, 1),), None, (np.int32(0),)),
        ],
        "CAST of floats": [
            *(Corner("CAST", (edges,), {"in_data_type": "float32", "out_data_type": t}, dtype=t) for t in types),
            *(
                Corner("CAST", (i(300, -129, 2**31 - 1),), {"in_data_type": "int32", "out_data_type": t}, dtype=t)
                for t in ("int8", "uint8", "int16", "uint16")
            ),
        ],
        "Many numbers at once": [
            *(Corner(code, (f(1, NAN, 3),), None, (i(0),), ()) for code in reductions),
            *(Corner(code, (f(INF, -INF),), None, (i(0),), ()) for code in ("SUM", "MEAN")),
            *(
                Corner(code, (x,), None, (i(0),), ())
                for code in ("REDUCE_MAX", "REDUCE_MIN")
                for x in (f(3, NAN), f(NAN, 3), f(NAN, NAN))
            ),
            *(
                Corner(code, (x,), {"output_type": "int32"}, (np.int32(0),), (), "int32")
                for code in ("ARG_MAX", "ARG_MIN")
                for x in (f(1, NAN, 3), f(NAN, 1, 0))
            ),
            Corner("CUMSUM", (f(1, NAN, 3),), None, (np.int32(0),)),
            Corner("TOPK_V2", (row,), None, (np.int32(3),), (1, 3)),
            Corner("SOFTMAX", (row,), {"beta": 1.0}),
            Corner("SOFTMAX", (f(INF, 1).reshape(1, 2),), {"beta": 1.0}),
            Corner("SOFTMAX", (f(-INF, -INF).reshape(1, 2),), {"beta": 1.0}),
            Corner("SOFTMAX", (f(-INF, 1).reshape(1, 2),), {"beta": 1.0}),
            Corner("LOG_SOFTMAX", (f(-INF, 1).reshape(1, 2),)),
            Corner("L2_NORMALIZATION", (f(1, NAN).reshape(1, 2),), NONE),
            Corner("L2_NORMALIZATION", (f(0, 0).reshape(1, 2),), NONE),
            *(
                Corner(code, (image.reshape(1, 2, 2, 1),), {**pool, **NONE}, shape=(1, 1, 1, 1))
                for code in ("MAX_POOL_2D", "AVERAGE_POOL_2D")
                for image in images[: 4 if code == "MAX_POOL_2D" else 1]
            ),
            Corner("BATCH_MATMUL", (f(0, 1).reshape(1, 2), f(INF, 1).reshape(2, 1)), shape=(1, 1)),
            Corner("FULLY_CONNECTED", (f(INF, 1).reshape(1, 2),), NONE, (f(0, 1).reshape(1, 2), f(0)), (1, 1)),
        ],
        "Indices out of range": [
            *(Corner("GATHER", (f(1, 2, 3), i(place)), {"axis": 0}, shape=(1,)) for place in (3, -1)),
            *(Corner("GATHER_ND", (f(1, 2, 3), i((place,))), shape=(1,)) for place in (3, -1)),
            *(Corner("EMBEDDING_LOOKUP", (i(place), TABLE), None, (), (1, 2), "float32") for place in (2, -1)),
            *(Corner("SLICE", (f(1, 2, 3), i(place)), None, (i(2),), (2,)) for place in (2, -1)),
            Corner(
                "ONE_HOT", (i(0, 3, -1),), {"axis": -1}, (np.int32(3), np.float32(1), np.float32(0)), (3, 3), "float32"
            ),
            Corner("DYNAMIC_UPDATE_SLICE", (f(1, 2, 3), f(9, 9), i(2))),
            Corner("DYNAMIC_UPDATE_SLICE", (f(1, 2, 3), f(9, 9), i(-1))),
            Corner("STRIDED_SLICE", (f(1, 2, 3),), None, (i(-9), i(9), i(1)), (3,), said="1, 2, 3; from -9 to 9"),
        ],
    }
