"""Operators of tensors without elements give what LiteRT's plain kernels give, on the device or as constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.quick import on_first_runtime
from tflgpu.model.writer import ModelBuilder

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

Array = NDArray[Any]

NONE = {"fused_activation_function": "NONE"}
SAME = {"padding": "SAME", "stride_h": 1, "stride_w": 1}


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def ints(*values: object) -> Array:
    return np.array(values, np.int32)


ONE, ZERO = np.float32(1), np.float32(0)


@dataclass(frozen=True)
class Corner:
    """An operator of run-time ``inputs`` and, after these, ``constants``; shapes of its outputs."""

    code: str
    inputs: tuple[Array, ...]
    outputs: tuple[tuple[int, ...], ...]
    options: Mapping[str, object] | None = None
    constants: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = field(default=("float32",))

    def model(self) -> bytes:
        b = ModelBuilder()
        operands = [b.input(x.shape, x.dtype.name) for x in self.inputs] + [b.constant(c) for c in self.constants]
        types = self.dtypes * len(self.outputs) if len(self.dtypes) == 1 else self.dtypes
        outputs = [b.tensor(shape, dtype) for shape, dtype in zip(self.outputs, types, strict=True)]
        b.op(self.code, operands, outputs, self.options)
        return b.finish(outputs)


CORNERS = (
    Corner("ADD", (ones(0, 3), ones(0, 3)), ((0, 3),), NONE),
    Corner("ADD", (ones(0, 3), ones(1, 3)), ((0, 3),), NONE),
    Corner("RELU", (ones(2, 0),), ((2, 0),)),
    Corner("CAST", (ones(2, 0),), ((2, 0),), {"in_data_type": "float32", "out_data_type": "int32"}, (), ("int32",)),
    Corner("LESS", (ones(2, 0), ones(2, 0)), ((2, 0),), None, (), ("bool",)),
    Corner("PRELU", (ones(0, 3),), ((0, 3),), None, (ones(3),)),
    Corner("SELECT_V2", (ones(0, 3) > 0, ones(0, 3), ones(0, 3)), ((0, 3),)),
    Corner("SOFTMAX", (ones(0, 4),), ((0, 4),), {"beta": 1.0}),
    Corner("L2_NORMALIZATION", (ones(0, 3),), ((0, 3),), NONE),
    Corner("RESHAPE", (ones(0, 4),), ((2, 0),), None, (ints(2, 0),)),
    Corner("RESHAPE", (ones(0, 4),), ((0, 4),), None, (ints(-1, 4),)),
    Corner("TRANSPOSE", (ones(0, 4),), ((4, 0),), None, (ints(1, 0),)),
    Corner("SHAPE", (ones(0, 3),), ((2,),), {"out_type": "int32"}, (), ("int32",)),
    Corner("EXPAND_DIMS", (ones(0, 3),), ((1, 0, 3),), None, (np.int32(0),)),
    Corner("SQUEEZE", (ones(1, 0),), ((0,),), {"squeeze_dims": [0]}),
    Corner("PACK", (ones(0), ones(0)), ((2, 0),), {"values_count": 2}),
    Corner("SPLIT", (), ((0, 2), (0, 2)), {"num_splits": 2}, (np.int32(1), ones(0, 4))),
    Corner("CONCATENATION", (ones(2, 0), ones(2, 3)), ((2, 3),), {"axis": 1, **NONE}),
    Corner("CONCATENATION", (ones(2, 3), ones(2, 0), ones(2, 1)), ((2, 4),), {"axis": 1, **NONE}),
    Corner("CONCATENATION", (ones(2, 0), ones(2, 0)), ((2, 0),), {"axis": 1, **NONE}),
    Corner("PAD", (ones(0, 2),), ((2, 2),), None, (ints((1, 1), (0, 0)),)),
    Corner("PAD", (ones(0, 2),), ((0, 4),), None, (ints((0, 0), (1, 1)),)),
    Corner("SLICE", (ones(3, 2),), ((0, 2),), None, (ints(1, 0), ints(0, 2))),
    Corner("STRIDED_SLICE", (ones(3, 2),), ((0, 2),), None, (ints(1, 0), ints(1, 2), ints(1, 1))),
    Corner("STRIDED_SLICE", (ones(0, 2),), ((0, 1),), None, (ints(0, 0), ints(1, 1), ints(1, 1))),
    Corner("GATHER", (ones(3, 2), ints()), ((0, 2),), {"axis": 0}),
    Corner("GATHER", (ones(0, 2), ints()), ((0, 2),), {"axis": 0}),
    Corner("GATHER_ND", (ones(3, 2), ints().reshape(0, 1)), ((0, 2),)),
    Corner("ONE_HOT", (ints(1, 2),), ((2, 0),), {"axis": -1}, (np.int32(0), ONE, ZERO)),
    Corner("ONE_HOT", (ints(),), ((0, 3),), {"axis": -1}, (np.int32(3), ONE, ZERO)),
    Corner("TOPK_V2", (ones(2, 3),), ((2, 0), (2, 0)), None, (np.int32(0),), ("float32", "int32")),
    Corner("TOPK_V2", (ones(0, 3),), ((0, 2), (0, 2)), None, (np.int32(2),), ("float32", "int32")),
    Corner("TILE", (ones(2, 3),), ((0, 3),), None, (ints(0, 1),)),
    Corner("FILL", (), ((0, 3),), None, (ints(0, 3), ONE)),
    Corner("RANGE", (), ((0,),), None, (np.int32(3), np.int32(3), np.int32(1)), ("int32",)),
    Corner("REVERSE_V2", (ones(0, 3),), ((0, 3),), None, (ints(0),)),
    Corner("CUMSUM", (ones(0, 3),), ((0, 3),), None, (np.int32(0),)),
    Corner("ARG_MAX", (ones(0, 3),), ((0,),), {"output_type": "int32"}, (np.int32(1),), ("int32",)),
    Corner("SUM", (ones(0, 3),), ((3,),), None, (ints(0),)),
    Corner("SUM", (ones(0, 3),), ((0,),), None, (ints(1),)),
    Corner("MEAN", (ones(0, 3),), ((3,),), None, (ints(0),)),
    Corner("REDUCE_MAX", (ones(2, 0),), ((2,),), None, (ints(1),)),
    Corner("BATCH_MATMUL", (ones(2, 0), ones(0, 3)), ((2, 3),)),
    Corner("BATCH_MATMUL", (ones(0, 2), ones(2, 3)), ((0, 3),)),
    Corner("FULLY_CONNECTED", (ones(0, 3),), ((0, 2),), None, (ones(2, 3), ones(2))),
    Corner("CONV_2D", (ones(0, 4, 4, 2),), ((0, 4, 4, 3),), SAME, (ones(3, 1, 1, 2), ones(3))),
    Corner(
        "DEPTHWISE_CONV_2D",
        (ones(0, 4, 4, 2),),
        ((0, 4, 4, 2),),
        {**SAME, "depth_multiplier": 1},
        (ones(1, 1, 1, 2), ones(2)),
    ),
    Corner("MAX_POOL_2D", (ones(0, 4, 4, 2),), ((0, 4, 4, 2),), {**SAME, "filter_height": 2, "filter_width": 2}),
    Corner("SPACE_TO_DEPTH", (ones(0, 4, 4, 1),), ((0, 2, 2, 4),), {"block_size": 2}),
    Corner("RESIZE_BILINEAR", (ones(0, 4, 4, 1),), ((0, 2, 2, 1),), None, (ints(2, 2),)),
    Corner("DYNAMIC_UPDATE_SLICE", (ones(3, 2), ones(0, 2), ints(0, 0)), ((3, 2),)),
)


@pytest.fixture(autouse=True)
def refuse_empty_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse empty copies, which PoCL does from version 6 on, and OpenCL before 2.1."""
    enqueue_copy = cl.enqueue_copy

    def enqueue(queue: cl.CommandQueue, target: Any, source: Any, **arguments: Any) -> cl.Event:
        on_host = [place.nbytes for place in (target, source) if isinstance(place, np.ndarray)]
        assert 0 not in (*on_host, arguments.get("byte_count")), "a copy of no bytes"
        return enqueue_copy(queue, target, source, **arguments)

    monkeypatch.setattr(cl, "enqueue_copy", enqueue)


def is_quick(corner: Corner, device_name: str) -> bool:
    return on_first_runtime(device_name) and any(corner is one for one in CORNERS[::4])


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("corner", CORNERS, ids=lambda c: f"{c.code}-{'-'.join(str(x.shape) for x in c.inputs)}")
def test_equals_litert(corner: Corner, device_name: str) -> None:
    model = corner.model()
    options = tflgpu.Options(device=device_name, fallback="forbid", cache="off")
    outputs = tflgpu.compile(model, options).run(list(corner.inputs))
    for got, expected in zip(outputs.values(), litert_outputs(model, corner.inputs), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected, strict=True)


def test_nothing_is_pinned_and_copied(device_name: str) -> None:
    """The persistent executor copies from and to pinned memory, as GPUs do, and reads arrays where they are."""
    corner = Corner("ADD", (ones(0, 3), ones(1, 3)), ((0, 3),), NONE)
    options = tflgpu.Options(
        device=device_name, execution=tflgpu.Execution(kernels="gpu", executor="persistent"), cache="off"
    )
    compiled = tflgpu.compile(corner.model(), options)
    for _ in range(5):
        (output,) = compiled.run(list(corner.inputs)).values()
        assert output.shape == (0, 3)


def test_an_empty_constant_goes_to_the_cpu_with_its_operator() -> None:
    """LiteRT computes with weights of no columns; they have no data in the file, and nobody gives them."""
    model = Corner("FULLY_CONNECTED", (ones(2, 0),), ((2, 2),), None, (ones(2, 0), ones(2))).model()
    with pytest.warns(tflgpu.FallbackWarning):
        compiled = tflgpu.compile(model, tflgpu.Options(cache="off"))
    (output,) = compiled.run([ones(2, 0)]).values()
    assert output.shape == (2, 2)


def test_what_nothing_decides_is_refused() -> None:
    """The pixels of a larger image cannot come from none."""
    model = Corner("RESIZE_BILINEAR", (ones(1, 0, 4, 1),), ((1, 2, 2, 1),), None, (ints(2, 2),)).model()
    with pytest.raises(tflgpu.UnsupportedError, match="its result has elements, but its input has none"):
        tflgpu.compile(model, tflgpu.Options(fallback="forbid", cache="off"))


def litert_outputs(model: bytes, inputs: tuple[Array, ...]) -> list[Array]:
    """LiteRT has no memory for tensors without elements, and neither takes nor gives them."""
    plain = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    litert = interpreter.Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=plain)
    litert.allocate_tensors()
    for detail, value in zip(litert.get_input_details(), inputs, strict=True):
        if value.size:
            litert.set_tensor(detail["index"], value)
    litert.invoke()
    return [
        np.empty(tuple(d["shape"]), d["dtype"]) if 0 in d["shape"] else litert.get_tensor(d["index"])
        for d in litert.get_output_details()
    ]
