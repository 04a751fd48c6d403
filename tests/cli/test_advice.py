"""Advice: the right operators, numbers that can be counted by hand, and silence where nothing is to be gained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tflgpu
from tests.support.models import WITHOUT_KERNEL, Builder
from tflgpu.cli.commands.demo import examples_folder
from tflgpu.model.tensor_info import Quantization
from tflgpu.report.report import Advice

SIZE = 64


def advice(model: bytes, options: tflgpu.Options | None = None) -> list[Advice]:
    return list(tflgpu.inspect(model, options).advice)


def only(model: bytes, kind: str) -> Advice:
    """The one piece of advice that a model gets."""
    (found,) = advice(model)
    assert found.kind == kind
    return found


def two_convolutions(first: int, middle: int, last: int) -> bytes:
    builder = Builder()
    x = builder.input((1, SIZE, SIZE, first), name="x")
    hidden = builder.convolution(x, middle)
    return builder.finish([builder.convolution(hidden, last)])


def chain(codes: Sequence[str]) -> bytes:
    """Unary operators in a row; the one without a kernel comes twice."""
    builder = Builder()
    current = builder.input((1, 8), name="x")
    for code in codes:
        if code == WITHOUT_KERNEL:
            current = builder.without_kernel(builder.without_kernel(current))
        else:
            current = builder.add(code, [current], (1, 8))
    return builder.finish([current])


def test_good_models_get_none(shared: Path) -> None:
    assert not advice((examples_folder() / "digits" / "digits.tflite").read_bytes())
    for name in ("mobilenet_v1_0.25_224_1_default_1", "face_landmark", "deeplabv3_257_mv_gpu", "selfie_segmenter"):
        assert not advice((shared / "models" / f"{name}.tflite").read_bytes()), name


def test_images_of_three_channels_cost_nothing() -> None:
    assert not advice(two_convolutions(3, 8, 3))


def test_lanes_are_counted() -> None:
    """4 channels in, 5 stored as 8, 4 out: the first kernel reads 4 and writes 8, the second reads 8 and writes 4.

    Either multiplies 4 * 8 a pixel where 4 * 5 are needed.
    """
    found = only(two_convolutions(4, 5, 4), "lanes")
    assert found.operators == (0,)
    assert found.text.startswith(
        "25% of what kernels read and write, and 38% of what convolutions multiply, is padding"
    )
    assert "operator 0 CONV_2D: 1x64x64x5 has 5 of 8 channels in use" in found.text
    assert not advice(two_convolutions(4, 8, 4))


def test_transposes_are_counted() -> None:
    """A channels-first model around one convolution: two kernels of 8 + 8 channels move, one of 8 + 8 computes."""
    builder = Builder()
    x = builder.input((1, 8, SIZE, SIZE), name="x")
    last = builder.add("TRANSPOSE", [x, builder.ints([0, 2, 3, 1])], (1, SIZE, SIZE, 8))
    result = builder.convolution(last, 8)
    first = builder.add("TRANSPOSE", [result, builder.ints([0, 3, 1, 2])], (1, 8, SIZE, SIZE))
    found = next(a for a in advice(builder.finish([first])) if a.kind == "movement")
    assert found.operators == (0, 2)
    assert "2 TRANSPOSE (100% of it)" in found.text
    assert "channels-last (NHWC)" in found.text


def reshaped(shape: tuple[int, ...]) -> bytes:
    """A convolution, a RESHAPE of its 64x64x8 and a function that reads it."""
    builder = Builder()
    x = builder.input((1, SIZE, SIZE, 4), name="x")
    image = builder.convolution(x, 8)
    flat = builder.add("RESHAPE", [image, builder.ints(shape)], shape)
    axis = builder.ints([len(shape) - 1])
    return builder.finish([builder.add("SUM", [flat, axis], (*shape[:-1], 1), keep_dims=True)])


def test_reshapes_that_move_data() -> None:
    found = only(reshaped((1, SIZE * SIZE // 2, 16)), "movement")
    assert found.operators == (1,)
    assert "1 RESHAPE" in found.text


def test_reshapes_that_are_free() -> None:
    """The advice says which those are."""
    assert "keeps the batch and the last axis" in only(reshaped((1, SIZE * SIZE // 2, 16)), "movement").text
    assert not advice(reshaped((1, SIZE * SIZE, 8)))


def test_the_operator_that_splits() -> None:
    found = only(chain(["TANH", WITHOUT_KERNEL, "TANH"]), "split")
    assert found.operators == (1, 2)
    assert "2 changes between device and CPU in each run, and 64 bytes cross" in found.text
    assert f"without 2 {WITHOUT_KERNEL} (operators 1, 2) it would be none, and all of it on the device" in found.text


def test_the_worst_of_several() -> None:
    """Whoever is at the end splits less than who is in the middle."""
    builder = Builder()
    x = builder.input((1, 8), name="x")
    y = builder.add("TANH", [x], (1, 8))
    z = builder.add("TANH", [builder.without_kernel(builder.without_kernel(y))], (1, 8))
    mixed = builder.add("CAST", [z], (1, 8), "int32")
    other = builder.add("BITWISE_XOR", [mixed, mixed], (1, 8), "int32")
    options = tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=["BITWISE_XOR"]))
    (found,) = advice(builder.finish([other]), options)
    assert "3 changes between device and CPU in each run, and 96 bytes cross" in found.text
    assert f"without 2 {WITHOUT_KERNEL} (operators 1, 2) it would be 1 change and 32 bytes" in found.text


def test_the_callers_own_choice_splits_too() -> None:
    model = chain(["TANH", "EXP", "TANH"])
    assert not advice(model)
    (found,) = advice(model, tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=["EXP"])))
    assert found.operators == (1,)


def test_float_inputs_of_integer_models() -> None:
    def model(size: int, *, also_read: bool) -> bytes:
        builder = Builder()
        x = builder.input((1, size, size, 4), name="x")
        y = builder.add("QUANTIZE", [x], (1, size, size, 4), "int8", quantization=Quantization([0.5], [0]))
        if not also_read:
            return builder.finish([y])
        z = builder.add("TANH", [x], (1, size, size, 4))
        return builder.finish([y, z])

    found = only(model(SIZE, also_read=False), "float-interface")
    assert found.operators == (0,)
    assert "as int8 16.4 kB instead of 65.5 kB" in found.text
    assert "inference_input_type" in found.text
    assert not advice(model(SIZE, also_read=True))
    assert not advice(model(8, also_read=False))  # too small to matter


def test_free_axes() -> None:
    def model(signature: Sequence[int]) -> bytes:
        builder = Builder()
        x = builder.input((1, 6, 8), name="x", shape_signature=signature)
        return builder.finish([builder.add("TANH", [x], (1, 6, 8))])

    assert not advice(model((1, 6, 8)))
    assert "`Options(shapes=Shapes(batch=N))`" in only(model((-1, 6, 8)), "free-axes").text
    several = only(model((-1, -1, 8)), "free-axes").text
    assert "axes [0, 1] of input 'x' open; they are [1, 6] here" in several


def test_a_real_model_that_moves_much(shared: Path) -> None:
    model = shared / "models" / "torchaudio_conformer.tflite"
    found = {a.kind: a for a in advice(model.read_bytes())}
    codes = [o.code for o in tflgpu.inspect(model).operators]
    assert {codes[i] for i in found["movement"].operators} == {"TRANSPOSE", "RESHAPE"}
    assert float(found["movement"].text.split("%")[0]) > 40


def test_reports_end_with_it() -> None:
    report = tflgpu.inspect(two_convolutions(4, 5, 4))
    assert str(report).splitlines()[-1] == f"advice: {report.advice[0].text}"
    assert report.as_dict()["advice"][0]["kind"] == "lanes"
