"""tflgpu's compiled model refuses the calls that LiteRT's refuses, with an error of a type that the same handler
catches.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.conftest import missing

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite")
BYTES = Path(DIGITS).read_bytes()
KEY, IMAGE, SCORES = "serving_default", "image", "probabilities"
RIGHT = np.zeros((1, 8, 8, 1), np.float32)

Call = Callable[[Any], Any]


def accel(m: Any) -> Any:
    return m.HardwareAccelerator


def cpu(m: Any, **given: Any) -> Any:
    return m.Options(cpu_options=m.CpuOptions(**given))


def closed(m: Any) -> Any:
    environment = m.Environment.create()
    environment.close()
    return environment


# Calls of the module.
MAKING: dict[str, Call] = {
    "nothing": lambda m: m.CompiledModel.from_file(),
    "none": lambda m: m.CompiledModel.from_file(None),
    "empty": lambda m: m.CompiledModel.from_file(""),
    "a number": lambda m: m.CompiledModel.from_file(5),
    "no file": lambda m: m.CompiledModel.from_file(DIGITS + "x"),
    "folder": lambda m: m.CompiledModel.from_file(str(Path(DIGITS).parent)),
    "text": lambda m: m.CompiledModel.from_file(__file__),
    "path of bytes": lambda m: m.CompiledModel.from_file(DIGITS.encode()),
    "content": lambda m: m.CompiledModel.from_buffer(BYTES),
    "truncated": lambda m: m.CompiledModel.from_buffer(BYTES[:2000]),
    "empty content": lambda m: m.CompiledModel.from_buffer(b""),
    "content is none": lambda m: m.CompiledModel.from_buffer(None),
    "content is a path": lambda m: m.CompiledModel.from_buffer(DIGITS),
    "cpu": lambda m: m.CompiledModel.from_file(DIGITS, accel(m).CPU),
    "cpu by number": lambda m: m.CompiledModel.from_file(DIGITS, 1),
    "npu": lambda m: m.CompiledModel.from_file(DIGITS, accel(m).NPU),
    "npu and cpu": lambda m: m.CompiledModel.from_file(DIGITS, accel(m).NPU | accel(m).CPU),
    "no processor": lambda m: m.CompiledModel.from_file(DIGITS, accel(m)(0)),
    "unknown processor": lambda m: m.CompiledModel.from_file(DIGITS, 64),
    "processor as text": lambda m: m.CompiledModel.from_file(DIGITS, "cpu"),
    "options twice": lambda m: m.CompiledModel.from_file(DIGITS, accel(m).CPU, options=m.Options()),
    "options": lambda m: m.CompiledModel.from_file(DIGITS, options=m.Options.create()),
    "options are a number": lambda m: m.CompiledModel.from_file(DIGITS, options=5),
    "two threads": lambda m: m.CompiledModel.from_file(DIGITS, options=cpu(m, num_threads=2)),
    "threads as text": lambda m: m.CompiledModel.from_file(DIGITS, options=cpu(m, num_threads="2")),
    "threads as float": lambda m: m.CompiledModel.from_file(DIGITS, options=cpu(m, num_threads=2.0)),
    "kernel mode": lambda m: m.CompiledModel.from_file(DIGITS, options=cpu(m, kernel_mode=m.CpuKernelMode.BUILTIN)),
    "unknown kernel mode": lambda m: m.CompiledModel.from_file(DIGITS, options=cpu(m, kernel_mode=7)),
    "environment is a number": lambda m: m.CompiledModel.from_file(DIGITS, environment=5),
    "closed environment": lambda m: m.CompiledModel.from_file(DIGITS, environment=closed(m)),
    "environment by position": lambda m: m.Environment.create("/tmp"),
    "environment of nothing": lambda m: m.Environment(),
    "path twice": lambda m: m.Environment.create(options="/tmp", runtime_path="/tmp"),
    "path and options": lambda m: m.Environment.create(options=m.EnvironmentOptions(), runtime_path="/tmp"),
    "host array": lambda m: m.TensorBuffer.create_from_host_memory(RIGHT),
    "host list": lambda m: m.TensorBuffer.create_from_host_memory(RIGHT.tolist()),
    "host double": lambda m: m.TensorBuffer.create_from_host_memory(RIGHT.astype(np.float64)),
    "host columns": lambda m: m.TensorBuffer.create_from_host_memory(RIGHT.repeat(2, 2)[:, :, ::2]),
    "no capsule": lambda m: m.TensorBuffer(),
    "capsule is none": lambda m: m.TensorBuffer(None).capsule,
    "capsule is a number": lambda m: m.TensorBuffer(5).read(1, np.float32),
}

# Calls of a model.
ASKING: dict[str, Call] = {
    "index of a number": lambda m: m.get_signature_index(1),
    "details of unknown": lambda m: m.get_input_tensor_details("nonsense"),
    "details of a number": lambda m: m.get_output_tensor_details(1),
    "unknown requirements": lambda m: m.get_input_buffer_requirements(9),
    "requirements of unknown": lambda m: m.get_output_buffer_requirements(0, 9),
    "inputs of unknown": lambda m: m.create_input_buffers(9),
    "outputs of unknown": lambda m: m.create_output_buffers(9),
    "unknown input": lambda m: m.create_input_buffer_by_name(KEY, "nonsense"),
    "input of unknown": lambda m: m.create_input_buffer_by_name("nonsense", IMAGE),
    "unknown output": lambda m: m.create_output_buffer_by_name(KEY, "nonsense"),
    "output of unknown": lambda m: m.create_output_buffer_by_name("nonsense", SCORES),
    "same shape": lambda m: m.resize_input_tensor(0, [1, 8, 8, 1]),
    "fixed shape": lambda m: m.resize_input_tensor(0, [3, 8, 8, 1]),
    "loose shape": lambda m: m.resize_input_tensor(0, [3, 8, 8, 1], strict=False),
    "loose rank": lambda m: m.resize_input_tensor(0, [8, 8, 1]),
    "negative": lambda m: m.resize_input_tensor(0, [-1, 8, 8, 1], strict=False),
    "zero": lambda m: m.resize_input_tensor(0, [0, 8, 8, 1], strict=False),
    "shape of unknown": lambda m: m.resize_input_tensor(9, [1, 8, 8, 1]),
    "shape in unknown": lambda m: m.resize_input_tensor(0, [1, 8, 8, 1], 9),
    "shape of text": lambda m: m.resize_input_tensor(0, "ab"),
    "shape of floats": lambda m: m.resize_input_tensor(0, [1.0, 8.0, 8.0, 1.0]),
    "no shape": lambda m: m.resize_input_tensor(0, None),
    "by unknown signature": lambda m: m.resize_input_tensor_by_name("nonsense", IMAGE, [1, 8, 8, 1]),
    "by unknown name": lambda m: m.resize_input_tensor_by_name(KEY, "nonsense", [1, 8, 8, 1]),
}

# Calls of a model that is ready to run on an input and an output.
RUNNING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "right": lambda m, i, o: m.run_by_index(0, [i], [o]),
    "no input": lambda m, i, o: m.run_by_index(0, [], [o]),
    "no output": lambda m, i, o: m.run_by_index(0, [i], []),
    "two inputs": lambda m, i, o: m.run_by_index(0, [i, i], [o]),
    "two outputs": lambda m, i, o: m.run_by_index(0, [i], [o, o]),
    "unknown": lambda m, i, o: m.run_by_index(9, [i], [o]),
    "negative": lambda m, i, o: m.run_by_index(-1, [i], [o]),
    "text": lambda m, i, o: m.run_by_index("0", [i], [o]),
    "an array": lambda m, i, o: m.run_by_index(0, [RIGHT], [o]),
    "swapped": lambda m, i, o: m.run_by_index(0, [o], [i]),
    "none": lambda m, i, o: m.run_by_index(0, None, [o]),
    "by name": lambda m, i, o: m.run_by_name(KEY, {IMAGE: i}, {SCORES: o}),
    "more names": lambda m, i, o: m.run_by_name(KEY, {IMAGE: i, "x": i}, {SCORES: o, "y": o}),
    "by unknown name": lambda m, i, o: m.run_by_name("nonsense", {IMAGE: i}, {SCORES: o}),
    "wrong output": lambda m, i, o: m.run_by_name(KEY, {IMAGE: i}, {"nonsense": o}),
    "without output": lambda m, i, o: m.run_by_name(KEY, {IMAGE: i}, {}),
    "lists by name": lambda m, i, o: m.run_by_name(KEY, [i], [o]),
    "destroyed": lambda m, i, o: (i.destroy(), m.run_by_index(0, [i], [o])),
    "read destroyed": lambda m, i, o: (i.destroy(), i.read(1, np.float32)),
    "write destroyed": lambda m, i, o: (i.destroy(), i.write(RIGHT)),
    "details destroyed": lambda m, i, o: (i.destroy(), i.get_tensor_details()),
    "destroyed twice": lambda m, i, o: (i.destroy(), i.destroy()),
    "closed": lambda m, i, o: (m.close(), m.run_by_index(0, [i], [o])),
    "closed list": lambda m, i, o: (m.close(), m.get_signature_list()),
    "closed twice": lambda m, i, o: (m.close(), m.close(), m.environment, i.write(RIGHT), o.read(1, np.float32)),
}

VALUES: dict[str, Any] = {
    "right": RIGHT,
    "flat": RIGHT.ravel(),
    "short": RIGHT[:, 1:],
    "long": RIGHT.repeat(2, 1),
    "strided": RIGHT.repeat(2, 2)[:, :, ::2],
    "empty": RIGHT[:0],
    "bytes": np.zeros(256, np.uint8),
    "more bytes": np.zeros(257, np.int8),
    "halves": RIGHT.astype(np.float16),
    "truth": RIGHT.astype(bool),
    "int32": RIGHT.astype(np.int32),
    "int64": RIGHT.astype(np.int64),
    "double": RIGHT.astype(np.float64),
    "other byte order": RIGHT.astype(">f4"),
    "objects": RIGHT.astype(object),
    "list": RIGHT.tolist(),
    "number": 1.0,
    "none": None,
}

SIZES: dict[str, tuple[Any, Any]] = {
    "right": (10, np.float32),
    "less": (3, np.float32),
    "nothing": (0, np.float32),
    "more": (11, np.float32),
    "negative": (-1, np.float32),
    "shape": ((2, 5), np.float32),
    "float": (2.0, np.float32),
    "text": ("a", np.float32),
    "by name": (10, "float32"),
    "bytes": (40, np.uint8),
    "more bytes": (41, np.uint8),
    "halves": (20, np.float16),
    "double": (5, np.float64),
    "int64": (5, np.int64),
    "no type": (10, None),
    "unknown type": (10, "nonsense"),
    "number as type": (10, 5),
}


def outcome(call: Callable[..., Any], *arguments: Any) -> type[Exception] | None:
    try:
        call(*arguments)
    except Exception as error:
        return type(error)
    return None


def agree(own: type[Exception] | None, expected: type[Exception] | None) -> None:
    """Both refuse, ours with an error that a handler for theirs catches; or neither does."""
    assert (own is None) == (expected is None), (own, expected)
    assert own is None or (expected is not None and issubclass(own, expected)), (own, expected)


@pytest.fixture(scope="module")
def both() -> tuple[ModuleType, ModuleType]:
    if find_spec("ai_edge_litert") is None:
        missing("LiteRT")
    ours, theirs = (import_module(f"{package}.compiled_model") for package in ("tflgpu", "ai_edge_litert"))
    return ours, theirs


@pytest.fixture
def models(both: tuple[ModuleType, ModuleType]) -> list[Any]:
    return [module.CompiledModel.from_file(DIGITS) for module in both]


@pytest.fixture(scope="module")
def open_models(both: tuple[ModuleType, ModuleType]) -> list[Any]:
    """For tests that leave them as they are."""
    return [module.CompiledModel.from_file(DIGITS) for module in both]


@pytest.mark.parametrize("name", MAKING)
def test_making(name: str, both: tuple[ModuleType, ModuleType]) -> None:
    agree(*(outcome(MAKING[name], module) for module in both))


@pytest.mark.parametrize("name", ASKING)
def test_asking(name: str, models: list[Any]) -> None:
    agree(*(outcome(ASKING[name], model) for model in models))


@pytest.mark.parametrize("name", RUNNING)
def test_running(name: str, models: list[Any]) -> None:
    buffers = [(model.create_input_buffers(0)[0], model.create_output_buffers(0)[0]) for model in models]
    for given, _ in buffers:
        given.write(RIGHT)
    agree(*(outcome(RUNNING[name], model, *pair) for model, pair in zip(models, buffers, strict=True)))


@pytest.mark.parametrize("name", VALUES)
def test_writing(name: str, open_models: list[Any]) -> None:
    agree(*(outcome(model.create_input_buffers(0)[0].write, VALUES[name]) for model in open_models))


@pytest.mark.parametrize("name", SIZES)
def test_reading(name: str, open_models: list[Any]) -> None:
    agree(*(outcome(model.create_output_buffers(0)[0].read, *SIZES[name]) for model in open_models))


def test_unknown_signatures_do_not_end_the_process(both: tuple[ModuleType, ModuleType]) -> None:
    """LiteRT aborts for them."""
    with pytest.raises(RuntimeError, match="there is no signature 9"):
        both[0].CompiledModel.from_file(DIGITS).get_signature_by_index(9)


def test_a_missing_input_is_refused(both: tuple[ModuleType, ModuleType]) -> None:
    """LiteRT computes on what its memory happens to hold."""
    model = both[0].CompiledModel.from_file(DIGITS)
    with pytest.raises(RuntimeError, match=r"inputs \['image'\]"):
        model.run_by_name(
            KEY, {"picture": model.create_input_buffers(0)[0]}, {SCORES: model.create_output_buffers(0)[0]}
        )
