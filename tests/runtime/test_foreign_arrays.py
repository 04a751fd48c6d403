"""Arrays of any library in and out, by what they export; duck types stand for libraries that are not installed."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tflgpu
from tests.support.models import Builder

SHAPE = (1, 2, 3)
X = np.arange(6, dtype=np.float32).reshape(SHAPE)
MASK = np.array([[[1, 0, 1], [0, 1, 1]]], np.float32)


class Tensor:
    """A tensor like PyTorch's: a sequence of its rows that exports its memory."""

    def __init__(self, data: np.ndarray, device: int = 1) -> None:
        self.data, self.device = data, device

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Any:
        return iter(self.data)

    def __contains__(self, item: object) -> bool:
        return item in self.data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.device != 1:
            raise TypeError("implicit conversion to a numpy array is not allowed")
        return self.data if dtype is None else self.data.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class Gradient(Tensor):
    """A tensor that needs a gradient exports nothing."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("can't export tensors that require gradient")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise RuntimeError("use tensor.detach().numpy() instead")


class Copies:
    """Only ``__array__``, which gives a copy."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.data.copy()


class Moved(Tensor):
    """``__dlpack__`` exports its memory to be read, and ``__array__`` gives other elements."""

    def __init__(self, data: np.ndarray, other: np.ndarray) -> None:
        super().__init__(data)
        self.other = other

    def __dlpack__(self, **options: Any) -> Any:
        view = self.data.view()
        view.flags.writeable = "max_version" not in options  # an old numpy takes all for read-only
        return view.__dlpack__(**options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.other


@pytest.fixture(scope="module")
def doubled() -> tflgpu.CompiledModel:
    builder = Builder()
    x = builder.input(SHAPE, name="x")
    options = tflgpu.Options(precision="fp32", cache="off")
    return tflgpu.compile(builder.finish([builder.add("ADD", [x, x], name="y")]), options)


@pytest.fixture(scope="module")
def masked() -> tflgpu.CompiledModel:
    builder = Builder()
    x, mask = builder.input(SHAPE, name="x"), builder.input(SHAPE, name="mask")
    outputs = [builder.add("MUL", [x, mask], name="y"), builder.add("SUB", [x, mask], name="z")]
    return tflgpu.compile(builder.finish(outputs), tflgpu.Options(precision="fp32", cache="off"))


@pytest.fixture(scope="module")
def pixels() -> tflgpu.CompiledModel:
    builder = Builder()
    x = builder.input((4, 5), "uint8", name="x")
    return tflgpu.compile(
        builder.finish([builder.add("CAST", [x], name="y")]), tflgpu.Options(precision="fp32", cache="off")
    )


@pytest.mark.parametrize(
    "given", [Tensor(X), Copies(X), memoryview(X), X.astype(np.float16), Tensor(X.astype(np.float64)), X[:, :, ::-1]]
)
def test_one_array_of_any_kind(doubled: tflgpu.CompiledModel, given: Any) -> None:
    expected = 2 * np.asarray(given, np.float32)
    for inputs in (given, [given], (given,), {"x": given}):
        np.testing.assert_array_equal(doubled.run(inputs)["y"], expected)
        np.testing.assert_array_equal(doubled.enqueue(inputs).wait()["y"], expected)


def test_pictures_and_buffers(pixels: tflgpu.CompiledModel) -> None:
    values = np.arange(20, dtype=np.uint8).reshape(4, 5)
    np.testing.assert_array_equal(pixels(Image.fromarray(values))["y"], values)
    np.testing.assert_array_equal(pixels(memoryview(array("B", range(20))).cast("B", (4, 5)))["y"], values)


def test_inputs_by_position_and_by_name(masked: tflgpu.CompiledModel) -> None:
    expected = masked.run({"x": X, "mask": MASK})
    for results in (
        masked(X, MASK),
        masked(X, mask=MASK),
        masked(mask=MASK, x=X),
        masked([X, MASK]),
        masked({"mask": MASK, "x": X}),
    ):
        assert results.keys() == expected.keys()
        assert all(np.array_equal(results[name], expected[name]) for name in expected)
    with pytest.raises(TypeError, match=r"2 inputs in order and \['mask'\] by name"):
        masked(X, MASK, mask=MASK)
    with pytest.raises(ValueError, match=r"inputs named \['other', 'x'\] were given"):
        masked(X, other=MASK)
    with pytest.raises(ValueError, match="1 inputs were given; the model has 2"):
        masked(Tensor(X))


def test_what_is_refused_and_why(doubled: tflgpu.CompiledModel) -> None:
    with pytest.raises(ValueError, match="input 'x' is in the memory of a CUDA GPU; copy it to the host"):
        doubled.run(Tensor(X, device=2))
    with pytest.raises(ValueError, match=r"input 'x' is no array: use tensor\.detach"):
        doubled.run(Gradient(X))
    with pytest.raises(ValueError, match=r"input 'x' has shape \[3\]; \[1, 2, 3\] was expected"):
        doubled.run(Tensor(X[0, 0]))
    with pytest.raises(ValueError, match="input 'x' has element type int32; float32 was expected"):
        doubled.run(Tensor(X.astype(np.int32)))
    with pytest.raises(TypeError, match="inputs is of type str"):
        doubled.run("x")


@pytest.mark.parametrize("wrap", [lambda a: a, Tensor, memoryview])
def test_outputs_in_arrays_of_the_caller(masked: tflgpu.CompiledModel, wrap: Any) -> None:
    for start in (masked.run, lambda *given: masked.enqueue(*given).wait()):
        target = np.full(SHAPE, np.nan, np.float32)
        results = start([X, MASK], {"y": wrap(target)})
        np.testing.assert_array_equal(target, X * MASK)
        assert results.keys() == {"z"}
        np.testing.assert_array_equal(results["z"], X - MASK)


def test_an_output_may_be_a_part_of_an_array(doubled: tflgpu.CompiledModel) -> None:
    whole = np.zeros((1, 2, 6), np.float32)
    assert doubled.run(X, {"y": whole[:, :, ::2]}) == {}
    np.testing.assert_array_equal(whole[:, :, ::2], 2 * X)
    assert not whole[:, :, 1::2].any()


def test_outputs_that_cannot_be_written(doubled: tflgpu.CompiledModel) -> None:
    fixed = np.zeros(SHAPE, np.float32)
    fixed.flags.writeable = False
    whole = np.zeros((1, 2, 6), np.float32)
    first = whole.reshape(-1)[:6].reshape(SHAPE)
    for target, message in (
        (fixed, "is a ndarray whose memory is read-only"),
        (memoryview(fixed), "is a memoryview whose memory is read-only"),
        (Moved(first, first.copy()), "is a Moved whose memory is read-only"),
        (Moved(first, whole[:, :, ::2]), "is a Moved whose memory is read-only"),
        (Copies(np.zeros(SHAPE, np.float32)), "is a Copies, which may give its elements as a copy"),
        (Tensor(np.zeros(SHAPE, np.float32), device=2), "is in the memory of a CUDA GPU"),
        (np.zeros(SHAPE), "has element type float64; float32 was expected"),
        (np.zeros((2, 3), np.float32), r"has shape \[2, 3\]; \[1, 2, 3\] was expected"),
    ):
        with pytest.raises(ValueError, match=f"output 'y' {message}"):
            doubled.run(X, {"y": target})


def test_results_are_exported(doubled: tflgpu.CompiledModel) -> None:
    result = doubled(X)["y"]
    exported = np.from_dlpack(result)
    assert np.shares_memory(exported, result) and np.array_equal(exported, 2 * X)


def test_tensors_of_pytorch(doubled: tflgpu.CompiledModel) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(X.copy()), torch.zeros(SHAPE)
    assert doubled.run(x, {"y": y}) == {}
    assert torch.equal(y, 2 * x) and torch.equal(torch.from_dlpack(doubled(x)["y"]), y)
    for wrong in (x.clone().requires_grad_(), x.to(torch.bfloat16)):
        with pytest.raises(ValueError, match="input 'x' is no array"):
            doubled.run(wrong)


def test_arrays_of_jax(doubled: tflgpu.CompiledModel) -> None:
    """They cannot be changed, so a result may become one, but none can be the place of a result."""
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X, device=jax.devices("cpu")[0])
    for inputs in (x, [x], {"x": x}):
        result = jax.numpy.from_dlpack(doubled.run(inputs)["y"])
        assert (result == 2 * x).all()
    with pytest.raises(ValueError, match=r"output 'y' is a ArrayImpl\b"):
        doubled.run(x, {"y": x})
    with pytest.raises(ValueError, match="input 'x'"):
        doubled.run(x.astype(jax.numpy.bfloat16))


def test_a_picture_is_no_place_of_a_result(pixels: tflgpu.CompiledModel) -> None:
    picture = Image.fromarray(np.zeros((4, 5), np.float32))
    with pytest.raises(ValueError, match="output 'y' is a Image"):
        pixels.run(np.zeros((4, 5), np.uint8), {"y": picture})
