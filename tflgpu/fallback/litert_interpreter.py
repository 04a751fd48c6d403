"""LiteRT's interpreter on one model; as a program, the server of a guarded process.

As a program it imports numpy and LiteRT and nothing of tflgpu, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

REFUSALS = (RuntimeError, ValueError)  # what LiteRT raises for an operator that it cannot run

# LiteRT's sets of kernels, by its names for them. XNNPACK, which is part of its defaults, refuses whole models for
# tensors that the plain kernels take.
PLAIN = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
KERNELS = ("AUTO", PLAIN)

ZEROS = "tflgpu_zeros"  # the signature that gives variables their first values, in files that have it

# A process may take this much address space, and this many times the bytes of a model and its inputs.
MEMORY, MEMORY_FACTOR = 4 << 30, 8

# Grace period of a watchdog, in seconds: an abandoned process ends itself after it.
GRACE = 5.0


_redirecting = threading.Lock()


@contextmanager
def without_notices() -> Iterator[None]:
    """Leave out what native code says on stderr in lines with ``INFO:``, such as the delegate that LiteRT made.

    All other lines are written when this ends.
    """
    with _redirecting, tempfile.TemporaryFile() as written:
        try:
            stderr = os.dup(2)
        except OSError:  # it is closed
            yield
            return
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            for line in written:
                if not line.startswith(b"INFO:"):
                    os.write(2, line)


def _interpreter(model: bytes, kernels: str, **options: Any) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # an extra of the package

    return Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType[kernels], **options)


class LitertInterpreter:
    """Runs the operators of one partition on the CPU. Not thread-safe: the caller serializes :meth:`run`."""

    def __init__(self, model: bytes, *, is_open: bool = False) -> None:
        """Prepare the operators, unless ``is_open``.

        Args:
            model: What :func:`tflgpu.fallback.submodel.extract_submodel` returns.
            is_open: Whether only a run can tell the shape of an input; until then LiteRT cannot judge the operators.

        Raises:
            RuntimeError, ValueError: LiteRT also refuses the operators.
        """
        self._model, self._is_open = model, is_open
        self._kernels: str | None = None  # the first set that did not refuse
        self.reset_state()

    def reset_state(self) -> None:
        """Make a new interpreter: LiteRT's ``reset_all_variables`` does not reset resource variables."""
        self._open(self._kernels or KERNELS[0])
        self._allocated = False
        if not self._is_open:
            self._allocate()

    def _open(self, kernels: str) -> None:
        with without_notices():
            self._interpreter = _interpreter(self._model, kernels)
        self._opened = kernels
        self._inputs = [d["index"] for d in self._interpreter.get_input_details()]

    def _allocate(self, shapes: Sequence[tuple[int, ...]] | None = None) -> None:
        """Prepare the operators for inputs of these shapes, by default the model's.

        Raises RuntimeError with the words of the first set of kernels if all refuse.
        """
        refusals: list[RuntimeError] = []
        for kernels in [self._kernels] if self._kernels else KERNELS:
            if kernels != self._opened:
                self._open(kernels)
            try:
                for index, shape in zip(self._inputs, shapes or (), strict=shapes is not None):
                    self._interpreter.resize_tensor_input(index, shape)
                with without_notices():
                    self._interpreter.allocate_tensors()
            except RuntimeError as refusal:
                refusals.append(refusal)
            else:
                self._kernels, self._allocated = kernels, True
                return
        raise refusals[0]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the partition once.

        Args:
            inputs: Arrays of any shapes in the order of the partition's inputs.

        Returns:
            New arrays in the order of its outputs.

        Raises:
            ValueError: The operators cannot take these shapes or values.
        """
        self._resize([a.shape for a in inputs])
        for index, array in zip(self._inputs, inputs, strict=True):
            if array.size:  # LiteRT has no memory for an empty tensor, and refuses to copy nothing to it
                self._interpreter.set_tensor(index, np.asarray(array, order="C"))
        try:
            self._interpreter.invoke()
        except RuntimeError as refusal:
            raise ValueError(f"the model cannot take these inputs; LiteRT says: {refusal}") from refusal
        return [self._result(detail) for detail in self._interpreter.get_output_details()]

    def _result(self, detail: Mapping[str, Any]) -> Array:
        shape = tuple(map(int, detail["shape"]))  # that of this run: the sizes may depend on the inputs' values
        return self._interpreter.get_tensor(detail["index"]) if 0 not in shape else np.empty(shape, detail["dtype"])

    def _resize(self, shapes: Sequence[tuple[int, ...]]) -> None:
        details = self._interpreter.get_input_details()
        if self._allocated and all(tuple(d["shape"]) == shape for d, shape in zip(details, shapes, strict=True)):
            return
        self._allocated = False
        try:
            self._allocate(shapes)
        except RuntimeError as refusal:
            given = ", ".join(str(list(shape)) for shape in shapes)
            raise ValueError(f"the model cannot take inputs of shapes {given}; LiteRT says: {refusal}") from refusal


# A signature of a file: its key, None for the main subgraph; the number of its subgraph; the names of its inputs; the
# tensors that are its outputs.
Place = tuple[str | None, int, Sequence[str], Sequence[int]]


class FileInterpreter:
    """Runs signatures of a file over what LiteRT keeps from run to run. Not thread-safe: the caller serializes runs."""

    def __init__(self, model: bytes) -> None:
        """Raise ValueError for a file that LiteRT cannot read."""
        with without_notices():  # XNNPACK keeps no results between operators
            self._interpreter = _interpreter(model, PLAIN, experimental_preserve_all_tensors=True)
        self._shapes: list[tuple[int, ...]] | None = None  # that the main subgraph is prepared for
        if ZEROS in self._interpreter.get_signature_list():
            self._interpreter.get_signature_runner(ZEROS)()

    def run(self, place: Place, inputs: Sequence[Array]) -> list[Array]:
        """Run a signature once.

        Args:
            place: Which one.
            inputs: Arrays of any shapes.

        Returns:
            New arrays of the outputs.

        Raises:
            ValueError: LiteRT refuses these inputs, or what it keeps by now.
        """
        signature, subgraph, names, outputs = place
        given = [np.asarray(array, order="C") for array in inputs]
        try:
            if signature is None:
                self._run_main(given)
            else:
                self._interpreter.get_signature_runner(signature)(**dict(zip(names, given, strict=True)))
            return [self._interpreter.get_tensor(tensor, subgraph) for tensor in outputs]
        except REFUSALS as refusal:
            raise ValueError(f"the model cannot take these inputs; LiteRT says: {refusal}") from refusal

    def _run_main(self, inputs: Sequence[Array]) -> None:
        places = [detail["index"] for detail in self._interpreter.get_input_details()]
        shapes = [array.shape for array in inputs]
        if shapes != self._shapes:
            for index, shape in zip(places, shapes, strict=True):
                self._interpreter.resize_tensor_input(index, shape)
            self._interpreter.allocate_tensors()
            self._shapes = shapes
        for index, array in zip(places, inputs, strict=True):
            self._interpreter.set_tensor(index, array)
        self._interpreter.invoke()


def result_shapes(model: bytes) -> list[list[int] | None]:
    """Return the shapes of a model's outputs, None for each that only a run can tell.

    Args:
        model: Declares an element or more for each output, so that an output without elements is what LiteRT computed.

    Raises:
        RuntimeError: LiteRT refuses the model.
        ValueError: LiteRT cannot read the model.
    """
    interpreter = _interpreter(model, PLAIN)
    interpreter.allocate_tensors()

    def shape(detail: Mapping[str, Any]) -> list[int] | None:
        if detail["dtype"] in (np.bytes_, np.object_):  # strings and handles: LiteRT may crash when it reads them
            return None if detail["dtype"] is np.bytes_ else list(map(int, detail["shape"]))
        try:
            if 0 not in detail["shape"]:  # a tensor without elements never has memory
                interpreter.get_tensor(detail["index"])
        except REFUSALS:  # no memory yet: LiteRT waits for a run to decide it
            return None
        return list(map(int, detail["shape"]))

    return list(map(shape, interpreter.get_output_details()))


def judged_runs(model: bytes, sets: Sequence[Mapping[int, Array]], outputs: Sequence[int], steps: int) -> list[Array]:
    """Run a model by LiteRT's defaults, XNNPACK among them; by plain kernels where these refuse it.

    Args:
        model: The file.
        sets: Values by tensor of the main subgraph, for each of several runs.
        outputs: The tensors whose values are wanted.
        steps: How often each set is run, with the state that the run before it left.

    Returns:
        The values, of one run after the other.

    Raises:
        RuntimeError, ValueError: LiteRT refuses.
    """
    values, interpreter = list[Array](), None
    for inputs in sets:
        if interpreter is not None and steps == 1:  # it has no state
            _set(interpreter, inputs)
            interpreter.invoke()
        else:
            interpreter = _first_run(model, inputs, KERNELS)
        values += (interpreter.get_tensor(index) for index in outputs)
        for _ in range(steps - 1):
            _set(interpreter, inputs)
            interpreter.invoke()
            values += (interpreter.get_tensor(index) for index in outputs)
    return values


def extremes(model: bytes, inputs: Mapping[int, Array], limit: float) -> dict[str, float]:
    """Run a model by LiteRT's plain kernels, which keep every result and may take ten times as long as XNNPACK.

    Args:
        model: The file.
        inputs: Values by tensor of the main subgraph.
        limit: The largest magnitude that is not remarkable.

    Returns:
        The extreme of each tensor of floats that exceeds the limit, by name: its element that is furthest from zero.
        Kernels of custom operators are XNNPACK's, which keeps no results, so that only outputs are looked at.

    Raises:
        RuntimeError, ValueError: LiteRT refuses.
    """
    interpreter = _first_run(model, inputs, (PLAIN, KERNELS[0]))
    found: dict[str, float] = {}
    for detail in interpreter.get_tensor_details():
        if detail["dtype"] is not np.float32 or not detail["name"]:  # without a name: memory of LiteRT's own
            continue
        with suppress(*REFUSALS):  # it has no memory
            low, high = (float(each) for each in _ends(interpreter.get_tensor(detail["index"])))
            if max(-low, high) > limit:
                found[detail["name"]] = high if high > -low else low
    return found


def _first_run(model: bytes, inputs: Mapping[int, Array], kernels: Sequence[str]) -> Any:
    """Return an interpreter after a run, by the first of these sets of kernels that does not refuse. Plain kernels keep
    every result."""
    refusals: list[RuntimeError] = []
    for each in kernels:
        try:
            interpreter = _interpreter(model, each, experimental_preserve_all_tensors=each == PLAIN)
            for index, array in inputs.items():
                interpreter.resize_tensor_input(index, array.shape)
            interpreter.allocate_tensors()
            _set(interpreter, inputs)
            interpreter.invoke()
        except RuntimeError as refusal:
            refusals.append(refusal)
        else:
            return interpreter
    raise refusals[0]


def _set(interpreter: Any, inputs: Mapping[int, Array]) -> None:
    for index, array in inputs.items():
        if array.size:
            interpreter.set_tensor(index, array)


def _ends(array: Array) -> tuple[np.float32, np.float32]:
    """Return the least and the greatest number; infinities count, NaN does not."""
    if not array.size:
        return np.float32(0), np.float32(0)
    return np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)


def perform(task: str, model: bytes, inputs: Sequence[Array], is_open: bool, place: Place | None = None) -> Any:
    """Do one of the tasks of a guarded process.

    Args:
        task: ``"shapes"`` asks for the shapes of results, ``"prepare"`` prepares a partition, ``"run"`` runs it once.
        model: The partition's file.
        inputs: For ``"run"``, in the order of the partition's inputs.
        is_open: As :class:`LitertInterpreter` has it.
        place: Of a user's whole file, the signature.

    Returns:
        The shapes, or None.

    Raises:
        RuntimeError, ValueError: LiteRT refuses.
    """
    if task == "shapes":
        return result_shapes(model)
    if place is not None:
        file = FileInterpreter(model)
        if task == "run":
            file.run(place, inputs)
        return None
    interpreter = LitertInterpreter(model, is_open=is_open)
    if task == "run":
        interpreter.run(inputs)
    return None


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until there are no more.

    Args:
        requests: Each is a line of JSON, the model, and its inputs.
        replies: Each is a line of JSON, and perhaps arrays.
    """
    replies.write(b"{}\n")  # ready
    replies.flush()
    while line := requests.readline():
        request = json.loads(line)
        sizes = [np.dtype(dtype).itemsize * prod(shape) for dtype, shape in request["inputs"]]
        _limit(request["model"] + sum(sizes), request["seconds"] + GRACE)
        model = requests.read(request["model"])
        arrays: list[Array] = []
        reply: dict[str, Any]
        try:
            inputs = [
                np.frombuffer(requests.read(size), dtype).reshape(shape)
                for size, (dtype, shape) in zip(sizes, request["inputs"], strict=True)
            ]
            if request["task"] == "judge":
                count = len(request["tensors"])
                starts = range(0, len(inputs), count) if count else [0]
                sets = [dict(zip(request["tensors"], inputs[n : n + count], strict=True)) for n in starts]
                arrays = judged_runs(model, sets, request["outputs"], request["steps"])
                reply = {"answer": None, "arrays": [(a.dtype.str, a.shape) for a in arrays]}
            elif request["task"] == "extremes":
                given = dict(zip(request["tensors"], inputs, strict=True))
                reply = {"answer": extremes(model, given, request["limit"])}
            else:
                reply = {"answer": perform(request["task"], model, inputs, request["is_open"], request["place"])}
        except REFUSALS as refusal:
            reply = {"refusal": str(refusal)}
        except MemoryError:
            reply = {"crash": f"takes more than {MEMORY} bytes of memory"}
        _limit(0, 0)
        replies.write(json.dumps(reply).encode() + b"\n")
        for array in arrays:
            replies.write(array.tobytes())
        replies.flush()


def _limit(given: int, seconds: float) -> None:
    """Limit the process's memory to what ``given`` bytes of a request may take, and its life; 0 seconds: not."""
    with suppress(ImportError, AttributeError, OSError, ValueError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = MEMORY + MEMORY_FACTOR * given
        resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def main() -> None:
    """Serve standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked, and ends this one
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # native code may write there
    import ai_edge_litert.interpreter  # noqa: F401 - before the first request, which has limited time

    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
