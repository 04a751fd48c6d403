"""tflgpu's interpreter refuses the calls that LiteRT's refuses, with an error of the same type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np
import pytest

import tflgpu
import tflgpu.interpreter

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
RIGHT = np.zeros((1, 8, 8, 1), np.float32)
IMAGE, PROBABILITIES = 0, 34

Call = Callable[[Any], Any]

# Calls of the module.
MAKING: dict[str, Call] = {
    "nothing": lambda m: m.Interpreter(),
    "empty path": lambda m: m.Interpreter(""),
    "empty content": lambda m: m.Interpreter(model_content=b""),
    "both": lambda m: m.Interpreter(str(DIGITS), DIGITS.read_bytes()),
    "a number": lambda m: m.Interpreter(5),
    "content is a number": lambda m: m.Interpreter(model_content=5),
    "content is a path": lambda m: m.Interpreter(model_content=str(DIGITS)),
    "no file": lambda m: m.Interpreter(str(DIGITS) + "x"),
    "no file, as a Path": lambda m: m.Interpreter(DIGITS / "x"),
    "folder": lambda m: m.Interpreter(DIGITS.parent),
    "text": lambda m: m.Interpreter(__file__),
    "text content": lambda m: m.Interpreter(model_content=Path(__file__).read_bytes()),
    "truncated": lambda m: m.Interpreter(model_content=DIGITS.read_bytes()[:2000]),
    "a Path": lambda m: m.Interpreter(DIGITS),
    "a path of bytes": lambda m: m.Interpreter(bytes(DIGITS)),
    "no thread": lambda m: m.Interpreter(DIGITS, num_threads=0),
    "threads as text": lambda m: m.Interpreter(DIGITS, num_threads="2"),
    "threads as float": lambda m: m.Interpreter(DIGITS, num_threads=2.0),
    "threads of numpy": lambda m: m.Interpreter(DIGITS, num_threads=np.int32(2)),
    "two threads": lambda m: m.Interpreter(DIGITS, num_threads=2),
    "unknown resolver": lambda m: m.Interpreter(DIGITS, experimental_op_resolver_type=1),
    "known resolver": lambda m: m.Interpreter(DIGITS, experimental_op_resolver_type=m.OpResolverType.BUILTIN_REF),
    "one delegate": lambda m: m.Interpreter(DIGITS, experimental_delegates=5),
    "no delegate": lambda m: m.Interpreter(DIGITS, experimental_delegates=[5]),
    "no library": lambda m: m.load_delegate("libedgetpu.so.1", {"device": "usb"}),
    "unnamed library": lambda m: m.load_delegate(3),
    "unknown registerer": lambda m: m.InterpreterWithCustomOps(["NoSuchFunction"], model_path=str(DIGITS)),
    "registerer is a number": lambda m: m.InterpreterWithCustomOps([5], model_path=str(DIGITS)),
    "registerer": lambda m: m.InterpreterWithCustomOps([lambda pointer: None], model_path=str(DIGITS)),
    "path by position": lambda m: m.InterpreterWithCustomOps(None, str(DIGITS)),
    "no interpreter": lambda m: m.SignatureRunner(),
    "no key": lambda m: m.SignatureRunner(m.Interpreter(DIGITS)),
    "unknown key": lambda m: m.SignatureRunner(m.Interpreter(DIGITS), "nonsense"),
}

# Calls of a new interpreter.
UNALLOCATED: dict[str, Call] = {
    "set": lambda i: i.set_tensor(IMAGE, RIGHT),
    "get input": lambda i: i.get_tensor(IMAGE),
    "get output": lambda i: i.get_tensor(PROBABILITIES),
    "view": lambda i: i.tensor(IMAGE)(),
    "view unknown": lambda i: i.tensor(9999)(),
    "function of unknown": lambda i: i.tensor(9999),
    "invoke": lambda i: i.invoke(),
    "reset": lambda i: i.reset_all_variables(),
    "unknown operator": lambda i: i._get_op_details(999),
    "unknown signature": lambda i: i.get_signature_runner("nonsense"),
    "empty signature": lambda i: i.get_signature_runner(""),
    "unknown subgraph": lambda i: i.get_tensor_details(1),
    "negative subgraph": lambda i: i.get_tensor_details(-1),
    "get in unknown subgraph": lambda i: i.get_tensor(IMAGE, 1),
    "get in negative subgraph": lambda i: i.get_tensor(IMAGE, subgraph_index=-1),
    "run without inputs": lambda i: i.get_signature_runner()(),
    "run by position": lambda i: i.get_signature_runner()(RIGHT),
    "run by a wrong name": lambda i: i.get_signature_runner()(picture=RIGHT),
    "run with too many": lambda i: i.get_signature_runner()(image=RIGHT, more=RIGHT),
    "run with a list": lambda i: i.get_signature_runner()(image=RIGHT.tolist()),
    "run with doubles": lambda i: i.get_signature_runner()(image=RIGHT.astype(np.float64)),
}

VALUES: dict[str, Any] = {
    "right": RIGHT,
    "strided": np.zeros((1, 8, 16, 1), np.float32)[:, :, ::2],
    "columns first": np.asfortranarray(RIGHT),
    "double": RIGHT.astype(np.float64),
    "integer": RIGHT.astype(np.int32),
    "truth": RIGHT.astype(bool),
    "objects": RIGHT.astype(object),
    "list": RIGHT.tolist(),
    "number": 1.0,
    "text": "1.0",
    "nothing": None,
    "rank": RIGHT[0],
    "size": RIGHT[:, 1:],
}

INDICES: dict[str, Any] = {
    "large": 9999,
    "negative": -1,
    "float": 0.0,
    "text": "a",
    "none": None,
    "numpy": np.int64(0),
    "array": np.array(0),
    "list": np.array([0]),
}

SHAPES: dict[str, Any] = {
    "same": [1, 8, 8, 1],
    "array": np.array([2, 8, 8, 1]),
    "floats": [2.0, 8, 8, 1],
    "rank": [8, 8, 1],
    "text": "ab",
    "none": None,
    "number": 5,
    "nested": [[1, 8, 8, 1]],
    "negative": [-1, 8, 8, 1],
    "large": [2**31, 8, 8, 1],
    "batch": [2, 8, 8, 1],
}


def held(interpreter: Any, method: str) -> None:
    """Call a method while there is an array on the interpreter's memory."""
    row = interpreter.tensor(IMAGE)()[0]
    arguments = (IMAGE, [2, 8, 8, 1]) if method == "resize_tensor_input" else ()
    getattr(interpreter, method)(*arguments)
    assert row is not None


def resized(interpreter: Any, method: str) -> None:
    """Call a method between a resize and the next allocation."""
    interpreter.resize_tensor_input(IMAGE, [2, 8, 8, 1])
    arguments = {"set_tensor": (IMAGE, np.zeros((2, 8, 8, 1), np.float32)), "get_tensor": (IMAGE,)}
    getattr(interpreter, method)(*arguments.get(method, ()))


# Calls of an interpreter that is ready.
ALLOCATED: dict[str, Call] = {
    **{f"set {n}": lambda i, v=v: i.set_tensor(IMAGE, v) for n, v in VALUES.items()},
    **{f"set at {n}": lambda i, k=k: i.set_tensor(k, RIGHT) for n, k in INDICES.items()},
    **{f"get {n}": lambda i, k=k: i.get_tensor(k) for n, k in INDICES.items()},
    **{f"view {n}": lambda i, k=k: i.tensor(k)() for n, k in INDICES.items()},
    **{f"resize {n}": lambda i, k=k: i.resize_tensor_input(k, [1, 8, 8, 1]) for n, k in INDICES.items()},
    **{f"resize to {n}": lambda i, s=s: i.resize_tensor_input(IMAGE, s) for n, s in SHAPES.items()},
    **{f"strict to {n}": lambda i, s=s: i.resize_tensor_input(IMAGE, s, strict=True) for n, s in SHAPES.items()},
    **{f"{n} held": lambda i, n=n: held(i, n) for n in ("invoke", "allocate_tensors", "resize_tensor_input")},
    **{
        f"{n} resized": lambda i, n=n: resized(i, n)
        for n in ("invoke", "set_tensor", "get_tensor", "get_input_details")
    },
    "set output": lambda i: i.set_tensor(PROBABILITIES, np.zeros((1, 10), np.float32)),
    "resize output": lambda i: i.resize_tensor_input(PROBABILITIES, [2, 10]),
    "intermediate": lambda i: i.get_tensor(1),
}


def outcome(call: Call, argument: Any) -> type[Exception] | None:
    try:
        call(argument)
    except Exception as error:
        return type(error)
    return None


def agree(call: Call, ours: Any, theirs: Any) -> None:
    """Both refuse, ours with an error that a handler for theirs catches; or neither does."""
    own, expected = outcome(call, ours), outcome(call, theirs)
    assert (own is None) == (expected is None), (own, expected)
    assert own is None or (expected is not None and issubclass(own, expected)), (own, expected)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # LiteRT deletes what it could not load
@pytest.mark.parametrize("name", MAKING)
def test_making_an_interpreter(name: str) -> None:
    agree(MAKING[name], tflgpu.interpreter, litert)


def either() -> tuple[Any, Any]:
    return tflgpu.Interpreter(DIGITS), litert.Interpreter(DIGITS)


@pytest.mark.device
@pytest.mark.parametrize("name", UNALLOCATED)
def test_before_tensors_are_allocated(name: str) -> None:
    agree(UNALLOCATED[name], *either())


@pytest.mark.device
@pytest.mark.parametrize("name", ALLOCATED)
def test_after_tensors_are_allocated(name: str) -> None:
    both = either()
    for interpreter in both:
        interpreter.allocate_tensors()
    agree(ALLOCATED[name], *both)


@pytest.mark.device
@pytest.mark.parametrize("name", ["empty", "model_invoking_error", "random_bytes", "tfl3_header_bad_offsets"])
def test_what_is_no_model(shared: Path, name: str) -> None:
    def prepare(module: ModuleType) -> None:
        module.Interpreter(shared / "models" / "invalid" / f"{name}.tflite").allocate_tensors()

    agree(prepare, tflgpu.interpreter, litert)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match=r"Could not open '.*nowhere\.tflite'"):
        tflgpu.Interpreter("nowhere.tflite")
    with pytest.raises(ValueError, match=r"test_misuse\.py' is not a valid model"):
        tflgpu.Interpreter(__file__)


@pytest.mark.device
def test_what_only_tflgpu_refuses() -> None:
    interpreter = tflgpu.Interpreter(DIGITS)
    interpreter.allocate_tensors()
    constant = next(t for t in interpreter.get_tensor_details() if t["name"].startswith("constant"))
    with pytest.raises(ValueError, match="is a constant"):  # LiteRT writes into the file's memory
        interpreter.set_tensor(constant["index"], interpreter.get_tensor(constant["index"]))
    with pytest.raises(ValueError, match=r"Options\.shapes\.batch"):
        tflgpu.Interpreter(DIGITS, options=tflgpu.Options(shapes=tflgpu.Shapes(batch=2)))
