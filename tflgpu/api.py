"""``tflgpu.compile`` and what it returns."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tflgpu import interpreter
from tflgpu.build import build
from tflgpu.codegen import KernelSource, render
from tflgpu.errors import FallbackWarning, ModelError, UnsupportedError
from tflgpu.layout import Shape
from tflgpu.lower import Lowered, entry_point, lower
from tflgpu.options import Options
from tflgpu.partition import Piece, crossing_bytes, operators_on_cpu, partition
from tflgpu.passes import optimize
from tflgpu.plan import Plan, make_plan
from tflgpu.report import Report, make_report
from tflgpu.runtime.devices import Device, choose
from tflgpu.runtime.executor import Executor
from tflgpu.runtime.session import open_session
from tflgpu.tflite import Buffer, Quantization, read_model

ModelSource = str | PathLike[str] | Buffer
Inputs = Mapping[str, ArrayLike] | Sequence[ArrayLike] | NDArray[Any]


@dataclass(frozen=True)
class TensorInfo:
    """A model input or output as callers see it: NHWC, in the element type of the file."""

    name: str
    shape: Shape
    dtype: str
    quantization: Quantization | None


@dataclass(frozen=True)
class KernelTime:
    """Device time of one launch: its function's name, the operators it computes, seconds, multiply-adds."""

    kernel: str
    operators: tuple[str, ...]
    seconds: float
    macs: int


@dataclass(frozen=True)
class Profile:
    """One entry a kernel, in order; each the median of several runs."""

    kernels: tuple[KernelTime, ...]

    @property
    def seconds(self) -> float:
        return sum(k.seconds for k in self.kernels)


def compile(model: ModelSource, options: Options | None = None) -> CompiledModel:
    """Compile a .tflite model (a path, bytes or a buffer) for an OpenCL device.

    Raises ModelError for a damaged model, UnsupportedError with every reason if an operator cannot run on the
    device, DeviceError without a fitting device, BuildError if its compiler fails, ValueError for an unknown
    signature or output.
    """
    return CompiledModel(load(model), options or Options())


def inspect(model: ModelSource, options: Options | None = None) -> Report:
    """What of a model can run on a device, and why not the rest; needs no device."""
    return make_report(_Stages(load(model), options or Options()).lowered)


def load(model: ModelSource) -> bytes:
    """The bytes of a model given in any form."""
    if isinstance(model, str | PathLike):
        return Path(model).read_bytes()
    return bytes(model)


def plan_model(data: bytes, options: Options, device: Device) -> tuple[Lowered, Plan]:
    """The stages before code generation for a model that runs wholly on the device.

    Raises UnsupportedError with every reason if it does not.
    """
    lowered = _Stages(data, options).lowered
    if lowered.obstacles:
        raise UnsupportedError(lowered.obstacles)
    return lowered, make_plan(optimize(lowered.graph), device.target(options))


class _Stages:
    """A model read, and lowered as a whole: what decides which of its operators go to the device."""

    def __init__(self, data: bytes, options: Options) -> None:
        self.model = read_model(data)
        self.entry = entry_point(self.model, options.signature, options.outputs)
        self.subgraph = self.model.subgraphs[self.entry.subgraph]
        self.simulate = options.quantized == "simulate"
        self.lowered = lower(self.model, self.entry, simulate=self.simulate)

    def pieces(self, options: Options) -> tuple[Piece, ...]:
        """One piece for the device if all of the model can go there, else as few as possible for both sides."""
        inputs, outputs = ([t.index for _, t in side] for side in (self.entry.inputs, self.entry.outputs))
        if not self.lowered.obstacles:
            return (Piece(True, tuple(range(len(self.entry.operators))), tuple(inputs), tuple(outputs)),)
        if self.lowered.unknown:
            raise ModelError("; ".join(self.lowered.unknown))
        if options.fallback == "forbid":
            raise UnsupportedError(self.lowered.obstacles)
        if not interpreter.is_installed():
            raise UnsupportedError((*self.lowered.obstacles, f"to run these on the CPU, {interpreter.ADVICE}"))
        return partition(self.subgraph, self.lowered.capable, inputs, outputs)

    def interpret(self, data: bytes, piece: Piece) -> interpreter.CpuPiece:
        """A piece for the CPU. Raises UnsupportedError if LiteRT cannot run it either."""
        try:
            return interpreter.CpuPiece(data, self.entry.subgraph, piece)
        except (RuntimeError, ValueError) as error:
            refusal = " ".join(str(error).split())
            raise UnsupportedError(
                (*self.lowered.obstacles, f"LiteRT's interpreter refuses them: {refusal}")
            ) from error

    def lower_piece(self, piece: Piece) -> Lowered:
        if len(piece.operators) == len(self.entry.operators):
            return self.lowered
        part = lower(self.model, self.entry.piece(self.subgraph, piece), simulate=self.simulate)
        assert not part.obstacles, part.obstacles
        return part


class DevicePiece:
    """The operators of a model that run on the device, or one group of them, compiled."""

    def __init__(self, lowered: Lowered, device: Device, options: Options, clock: Stopwatch) -> None:
        self.plan: Plan = make_plan(optimize(lowered.graph), device.target(options))
        clock.lap("plan")
        self.source: KernelSource = render(self.plan)
        clock.lap("render")
        session = open_session(device)
        clock.lap("context")
        kernels = build(self.source, session)
        clock.lap("build")
        self._executor: Executor | None = Executor(self.plan, kernels, session)
        clock.lap("upload")
        self._dtypes = [t.dtype for _, t in lowered.outputs]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Arrays in the file's element types, in and out, in the order of the piece's tensors."""
        assert self._executor is not None
        results = self._executor.run(inputs)
        return [r.astype(dtype, copy=False) for r, dtype in zip(results, self._dtypes, strict=True)]

    def close(self) -> None:
        """Release the device memory; plan and source stay."""
        self._executor = None

    def profile(self, inputs: Sequence[NDArray[Any]], runs: int, device: Device) -> list[float]:
        """Median seconds of each kernel on a queue of its own."""
        session = open_session(device, profiling=True)
        executor = Executor(self.plan, build(self.source, session), session)
        medians = np.median([executor.profile(inputs) for _ in range(runs + 1)][1:], axis=0)
        return [float(m) for m in medians]


class CompiledModel:
    """A model on a device. Made by :func:`tflgpu.compile`; thread-safe, picklable, a context manager.

    inputs, outputs: TensorInfo of each. report: what became of each operator. seconds: what each stage of compiling
    took.
    """

    def __init__(self, data: bytes, options: Options) -> None:
        self._data, self.options = data, options
        self._lock = threading.Lock()
        clock = Stopwatch()
        self.device = choose(options.device)
        clock.lap("device")
        stages = _Stages(data, options)
        pieces = stages.pieces(options)
        clock.lap("plan")
        self._steps: list[tuple[Piece, DevicePiece | interpreter.CpuPiece]] = []
        for piece in pieces:
            if piece.on_device:
                self._steps.append((piece, DevicePiece(stages.lower_piece(piece), self.device, options, clock)))
            else:
                self._steps.append((piece, stages.interpret(data, piece)))
                clock.lap("interpreter")
        self.seconds: Mapping[str, float] = clock.laps
        self._on_device = [step for _, step in self._steps if isinstance(step, DevicePiece)]
        plans = [step.plan for step in self._on_device]
        crossing = crossing_bytes(pieces, stages.subgraph)
        self.report = make_report(stages.lowered, plans, operators_on_cpu(pieces), crossing)
        self._inputs, self._outputs = stages.entry.inputs, stages.entry.outputs
        self.inputs, self.outputs = (
            tuple(TensorInfo(name, t.shape, t.dtype, t.quantization) for name, t in side)
            for side in (self._inputs, self._outputs)
        )
        if any(not p.on_device for p in pieces):
            warnings.warn(self.report.warning, FallbackWarning, stacklevel=3)

    @property
    def plan(self) -> Plan:
        """The plan of the device's part; of the first, if the CPU's operators split it.

        Raises ValueError if nothing of the model runs on the device.
        """
        return self._first().plan

    @property
    def source(self) -> KernelSource:
        """The generated source that belongs to :attr:`plan`."""
        return self._first().source

    def run(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """One inference: NHWC arrays by name, in order, or one alone; every output by name.

        Raises ValueError for inputs that do not fit, DeviceError if the device fails or the model is closed.
        """
        values = self._values(inputs)
        with self._lock:
            if not self._steps:
                raise ValueError("this model is closed; compile it again")
            for piece, step in self._steps:
                results = step.run([values[t] for t in piece.inputs])
                values |= zip(piece.outputs, results, strict=True)
        return {name: values[tensor.index] for name, tensor in self._outputs}

    def profile(self, inputs: Inputs, runs: int = 10) -> Profile:
        """Device time of each kernel, the median of ``runs`` inferences on a queue of its own."""
        values = self._values(inputs)
        codes = {o.index: o.code for o in self.report.operators}
        times: list[KernelTime] = []
        with self._lock:
            for piece, step in self._steps:
                given = [values[t] for t in piece.inputs]
                values |= zip(piece.outputs, step.run(given), strict=True)
                if isinstance(step, DevicePiece):
                    seconds = step.profile(given, runs, self.device)
                    for name, planned, each in zip(step.source.names, step.plan.kernels, seconds, strict=True):
                        operators = tuple(codes[i] for i in planned.node.sources)
                        times.append(KernelTime(name, operators, each, planned.kernel.macs))
        return Profile(tuple(times))

    def _first(self) -> DevicePiece:
        if not self._on_device:
            raise ValueError("nothing of this model runs on the device; model.report says why")
        return self._on_device[0]

    def _values(self, inputs: Inputs) -> dict[int, NDArray[Any]]:
        """The model's inputs by the file's tensor index."""
        arrays = (_checked(info, array) for info, array in zip(self.inputs, self._ordered(inputs), strict=True))
        return {tensor.index: array for (_, tensor), array in zip(self._inputs, arrays, strict=True)}

    def close(self) -> None:
        """Release the device memory; running afterwards is an error, closing again is not."""
        with self._lock:
            self._steps = []
            for piece in self._on_device:
                piece.close()

    def _ordered(self, inputs: Inputs) -> list[ArrayLike]:
        names = [i.name for i in self.inputs]
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise ValueError(f"inputs named {sorted(map(str, inputs))} were given; the model has {names}")
            return [inputs[name] for name in names]
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if len(inputs) != len(names):
            raise ValueError(f"{len(inputs)} inputs were given; the model has {len(names)}: {names}")
        return list(inputs)

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[CompiledModel], tuple[bytes, Options]]:
        return CompiledModel, (self._data, self.options)

    def __repr__(self) -> str:
        kernels = sum(len(piece.plan.kernels) for piece in self._on_device)
        return f"<CompiledModel on {self.device.name}: {kernels} kernels>"


class Stopwatch:
    """Seconds by stage; a stage that comes again adds up."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = self.laps.get(name, 0.0) + now - self._last, now


def _checked(info: TensorInfo, value: ArrayLike) -> NDArray[Any]:
    array = np.asarray(value)
    if array.shape != info.shape:
        raise ValueError(f"input {info.name!r} has shape {list(array.shape)}; {list(info.shape)} was expected")
    if array.dtype.name != info.dtype and not (array.dtype.kind == "f" and info.dtype == "float32"):
        raise ValueError(f"input {info.name!r} has element type {array.dtype}; {info.dtype} was expected")
    return np.ascontiguousarray(array, info.dtype)
