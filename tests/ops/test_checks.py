"""``Numerics(checks=True)``: what LiteRT refuses at run time is a ValueError that names the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.ops.axes import FAMILIES
from tests.support import litert
from tests.support.models import Builder
from tflgpu.model.tensor_info import Quantization
from tflgpu.options import CacheFiles, CpuPart, Execution, Numerics, Options

Array = NDArray[Any]

TABLE = np.arange(6, dtype=np.float32).reshape(2, 3)
NONE = {"fused_activation_function": "NONE"}
GRID = Quantization([0.5], [3])


def i(*values: object, dtype: str = "int32") -> Array:
    return np.array(values, dtype)


def f(*values: float) -> Array:
    return np.array(values, np.float32)


# Code, options, the input before the one that is checked, and for this one good numbers and bad ones.
CASES: dict[str, tuple[str, dict[str, object] | None, Array, Array, tuple[Array, ...]]] = {
    "gather": ("GATHER", {"axis": 1}, TABLE, i(0, 2), (i(0, 3), i(-1, 0))),
    "gather_long": ("GATHER", {"axis": 0}, TABLE, i(0, 1, dtype="int64"), (i(2**32, 0, dtype="int64"),)),
    "gather_one": ("GATHER", {"axis": 0}, TABLE, np.array(1, np.int32), (np.array(2, np.int32),)),
    "gather_nd": ("GATHER_ND", None, TABLE, i((1, 2), (0, 0)), (i((1, 2), (0, 3)), i((2, 0), (0, 0)))),
    "slice": ("SLICE", None, TABLE, i(0, 1), (i(0, 3), i(1, 1), i(-1, 0))),
    "div": ("DIV", NONE, i(7, 8), i(-1, 3), (i(2, 0),)),
    "div_quantized": ("DIV", NONE, i(7, 8, dtype="uint8"), i(2, 4, dtype="uint8"), (i(3, 4, dtype="uint8"),)),
    "floor_div": ("FLOOR_DIV", None, f(1, 2), f(0.5, -1), (f(1, 0), f(-0.0, 1))),
    "floor_div_bytes": ("FLOOR_DIV", None, i(7, 8, dtype="int8"), i(-1, 3, dtype="int8"), (i(1, 0, dtype="int8"),)),
    "floor_mod": ("FLOOR_MOD", None, i(7, 8, dtype="int64"), i(2**32, 3, dtype="int64"), (i(0, 2, dtype="int64"),)),
    "pow": ("POW", None, i(2, 3), i(0, 2), (i(0, -1),)),
    # LiteRT takes these as they are.
    "div_floats": ("DIV", NONE, f(1, 2), f(0, 1), ()),
    "floor_mod_floats": ("FLOOR_MOD", None, f(1, 2), f(0, 1), ()),
    "pow_floats": ("POW", None, f(1, 2), f(-1, 1), ()),
}


def append(b: Builder, name: str) -> int:
    code, options, other, checked, _ = CASES[name]
    grid = GRID if name == "div_quantized" else None
    x, y = (b.input(a.shape, a.dtype.name, quantization=grid) for a in (other, checked))
    more = [b.constant(i(2, 1))] if code == "SLICE" else []
    shapes = {"gather": (2, 2), "gather_long": (2, 3), "gather_one": (3,), "gather_nd": (2,), "slice": (2, 1)}
    return b.add(
        code,
        [x, y, *more],
        shapes.get(name, other.shape),
        other.dtype.name,
        name=name,
        quantization=grid,
        **(options or {}),
    )


def model() -> bytes:
    """All cases, and an EMBEDDING_LOOKUP, which takes its inputs in the other order."""
    b = Builder()
    outputs = [append(b, name) for name in CASES]
    ids, table = b.input((2,), "int32"), b.input(TABLE.shape)
    outputs.append(b.tensor((2, 3), name="embedding"))
    b.op("EMBEDDING_LOOKUP", [ids, table], outputs[-1:])
    return b.finish(outputs)


def inputs() -> list[Array]:
    return [a for _, _, other, good, _ in CASES.values() for a in (other, good)] + [i(1, 0), TABLE]


@pytest.mark.second_runtime(when=lambda executor: executor == "launch")
@pytest.mark.parametrize("executor", ["launch", "persistent"])
@pytest.mark.parametrize("kernels", FAMILIES)
def test_what_litert_refuses_is_an_error_that_names_the_operator(kernels: Any, executor: Any, device_name: str) -> None:
    data, given = model(), inputs()
    options = Options(
        device=device_name,
        execution=Execution(kernels=kernels, executor=executor),
        numerics=Numerics(checks=True),
        precision="fp32",
    )
    checked = tflgpu.compile(data, options)
    expected = litert.run(data, *given)
    for name, got in checked.run(given).items():
        np.testing.assert_allclose(got, expected[name], rtol=1e-6)
    assert [info.name for info in checked.outputs] == [*CASES, "embedding"]
    faults = [(2 * n + 1, name, bad) for n, name in enumerate(CASES) for bad in CASES[name][4]]
    for place, name, bad in [*faults, (len(given) - 2, "embedding", i(0, 2))]:
        wrong = [*given[:place], bad, *given[place + 1 :]]
        with pytest.raises(RuntimeError):
            litert.run(data, *wrong)
        with pytest.raises(ValueError, match=rf"^operator \d+ [A-Z_]+ \('{name}'\): its input [01] has a[^;]*$"):
            checked.run(wrong)
    assert checked.run(given).keys() == expected.keys(), "a run after an error is as any other"


def test_every_fault_is_named_and_outputs_on_the_device_are_none_of_them(device_name: str) -> None:
    import pyopencl.array

    b = Builder()
    outputs = [append(b, name) for name in ("gather", "pow")]
    checked = tflgpu.compile(b.finish(outputs), Options(device=device_name, numerics=Numerics(checks=True)))
    places = {info.name: pyopencl.array.zeros(checked.queue, info.shape, info.dtype) for info in checked.outputs}
    assert checked.run([TABLE, i(0, 2), i(2, 3), i(0, 2)], places) == {}
    assert places["pow"].get().tolist() == [1, 9]
    with pytest.raises(
        ValueError, match=r"0 GATHER \('gather'\).* from 0 to 2; operator 1 POW .* a negative exponent$"
    ):
        checked.run([TABLE, i(0, 3), i(2, 3), i(0, -2)], places)


def test_a_constant_divisor_is_checked(device_name: str) -> None:
    b = Builder()
    outputs = [b.tensor((2,), "int32") for _ in range(2)]
    x = b.input((2,), "int32")
    for divisor, output in zip((i(1, 0), i(1, 2)), outputs, strict=True):
        b.op("FLOOR_DIV", [x, b.constant(divisor)], [output])
    checked = tflgpu.compile(b.finish(outputs), Options(device=device_name, numerics=Numerics(checks=True)))
    with pytest.raises(ValueError, match=r"^operator 0 FLOOR_DIV [^;]* its input 1 has a divisor of zero$"):
        checked.run(i(3, 4))


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_parts_of_a_model_are_checked(device_name: str, tmp_path: Path) -> None:
    """And a compiled model in the cache is of one kind or the other."""
    b = Builder()
    outputs = [append(b, name) for name in ("gather", "gather_long")]
    data, wrong = b.finish(outputs), [TABLE, i(0, 2), TABLE, i(0, -1, dtype="int64")]
    unchecked, checked = (
        Options(
            device=device_name,
            cpu_part=CpuPart(operators=[0]),
            numerics=Numerics(checks=checks),
            cache_files=CacheFiles(path=tmp_path),
        )
        for checks in (False, True)
    )
    for _ in range(2):
        assert tflgpu.compile(data, unchecked).run(wrong)["gather_long"][1].tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match="operator 1 GATHER"):
            tflgpu.compile(data, checked).run(wrong)
