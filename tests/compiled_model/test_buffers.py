"""Buffers of a compiled model: views of numpy and DLPack, memory of the program, and memory of the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyopencl.array
import pytest

import tflgpu
from tflgpu.compiled_model import CompiledModel, Environment, GpuOptions, HardwareAccelerator, Options
from tflgpu.model.writer import ModelBuilder
from tflgpu.tensor_buffer import TensorBuffer

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
IMAGE = np.load(DIGITS.parent / "held_out.npz")["images"][:1, :, :, None].astype(np.float32) / 16


def test_buffers_are_arrays_in_the_same_memory() -> None:
    model = CompiledModel.from_file(DIGITS)
    (given,), (scores,) = model.create_input_buffers(0), model.create_output_buffers(0)
    np.asarray(given)[...] = IMAGE
    model.run_by_index(0, [given], [scores])
    expected = tflgpu.compile(DIGITS).run(IMAGE)["probabilities"]
    np.testing.assert_array_equal(np.asarray(scores), expected)
    np.testing.assert_array_equal(np.from_dlpack(scores), expected)
    assert np.shares_memory(np.from_dlpack(scores), np.asarray(scores))
    np.testing.assert_array_equal(tflgpu.compile(DIGITS).run(given)["probabilities"], expected)
    assert np.asarray(scores, np.float64).dtype == np.float64
    scores.destroy()
    with pytest.raises(RuntimeError, match="destroyed"):
        np.asarray(scores)


def test_memory_of_the_program_is_shared() -> None:
    model = CompiledModel.from_file(DIGITS)
    image, scores = np.zeros(65, np.float32)[1:].reshape(8, 8), np.zeros((1, 10), np.float32)
    buffers = [TensorBuffer.create_from_host_memory(array) for array in (image, scores)]
    image[...] = IMAGE[0, :, :, 0]
    model.run_by_index(0, buffers[:1], buffers[1:])
    assert scores.argmax() == 7
    buffers[0].write(np.ones(64, np.float32))
    assert image.min() == 1
    image.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        TensorBuffer.create_from_host_memory(image).write(image)
    with pytest.raises(RuntimeError, match="64 elements of float32; the buffer has 10"):
        model.run_by_index(0, buffers[1:], buffers[1:])


def test_arrays_on_the_device_stay_there() -> None:
    queue = tflgpu.compile(DIGITS).queue
    with Environment.create(queue=queue) as environment:
        first, second = (CompiledModel.from_file(DIGITS, environment=environment) for _ in range(2))
    image = pyopencl.array.to_device(queue, IMAGE)
    scores = pyopencl.array.to_device(queue, np.zeros((1, 10), np.float32))
    given, results = (TensorBuffer.create_from_device_array(array) for array in (image, scores))
    for model in (first, second):
        scores.set(np.zeros((1, 10), np.float32))
        model.run_by_index(0, [given], [results])
        assert scores.get().argmax() == results.read(10, np.float32).argmax() == np.asarray(results).argmax() == 7
    given.write(np.ones(4, np.float32))
    assert image.get().ravel()[:5].tolist() == [1, 1, 1, 1, IMAGE.ravel()[4]]
    with pytest.raises(BufferError, match="OpenCL"):
        np.from_dlpack(results)
    with pytest.raises(TypeError, match="pyopencl"):
        TensorBuffer.create_from_device_array(IMAGE)


def test_a_tensor_s_own_type_can_be_read_where_litert_has_none() -> None:
    builder = ModelBuilder()
    numbers = builder.input((4,), "int64", name="numbers")
    doubled = builder.tensor((4,), "int64", name="doubled")
    builder.op("ADD", [numbers, numbers], [doubled])
    model = CompiledModel.from_buffer(builder.finish([doubled]))
    assert model.get_signature_list() == {"<placeholder signature>": {"inputs": ["numbers"], "outputs": ["doubled"]}}
    (given,), (results,) = model.create_input_buffers(0), model.create_output_buffers(0)
    given.write(np.arange(4))
    model.run_by_index(0, [given], [results])
    assert results.read(4, np.int64).tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="Unsupported dtype"):
        results.read(4, np.float64)


def test_processors_and_options_choose_those_of_tflgpu() -> None:
    def options(**given: object) -> tflgpu.Options:
        return CompiledModel.from_file(DIGITS, **given)._model.signatures[0].compiled().options  # type: ignore[arg-type]

    either = HardwareAccelerator.CPU | HardwareAccelerator.GPU
    assert (options().device, options().precision) == ("auto", "auto")
    assert (options(hardware_accel=HardwareAccelerator.CPU).device, options().fallback) == ("cpu", "auto")
    assert options(hardware_accel=either).device == "auto"
    assert options(options=Options(either, gpu_options=GpuOptions(enforce_f32=True))).precision == "fp32"
    assert options(options=tflgpu.Options(precision="fp16")).precision == "fp16"
    with pytest.raises(ValueError, match=r"Options\.shapes\.batch is for tflgpu\.compile"):
        options(options=tflgpu.Options(shapes=tflgpu.Shapes(batch=2)))


def test_a_resized_model_computes_all_rows() -> None:
    model = CompiledModel.from_file(DIGITS)
    model.resize_input_tensor(0, [3, 8, 8, 1], strict=False)
    (given,), (scores,) = model.create_input_buffers(0), model.create_output_buffers(0)
    given.write(IMAGE.repeat(3, 0))
    model.run_by_index(0, [given], [scores])
    assert np.asarray(scores).argmax(-1).tolist() == [7, 7, 7]
    assert model.is_fully_accelerated()
