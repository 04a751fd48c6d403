"""``tflgpu.compile`` and what it returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tflgpu.build import build
from tflgpu.codegen import KernelSource, render
from tflgpu.errors import ModelError, UnsupportedError
from tflgpu.layout import Shape
from tflgpu.lower import KNOWN_CUSTOM, Lowered, lower
from tflgpu.options import Options
from tflgpu.passes import optimize
from tflgpu.plan import Plan, make_plan
from tflgpu.report import Report, make_report
from tflgpu.runtime.devices import Device, choose
from tflgpu.runtime.executor import Executor
from tflgpu.runtime.session import open_session
from tflgpu.tflite import Buffer, FileTensor, Quantization, read_model

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
    return make_report(_lowered(load(model), options or Options()))


def load(model: ModelSource) -> bytes:
    """The bytes of a model given in any form."""
    if isinstance(model, str | PathLike):
        return Path(model).read_bytes()
    return bytes(model)


def _lowered(data: bytes, options: Options) -> Lowered:
    return lower(read_model(data), options.signature, options.outputs, simulate=options.quantized == "simulate")


def plan_model(data: bytes, options: Options, device: Device) -> tuple[Lowered, Plan]:
    """The stages that need no device to be open: read, lower, passes, plan."""
    lowered = _lowered(data, options)
    unknown = [
        e for e in lowered.entries if e.reasons and e.code not in KNOWN_CUSTOM and "known neither" in e.reasons[0]
    ]
    if unknown:
        raise ModelError("; ".join(f"operator {e.index}: {r}" for e in unknown for r in e.reasons))
    if lowered.obstacles:
        raise UnsupportedError(lowered.obstacles)
    return lowered, make_plan(optimize(lowered.graph), device.target(options))


class CompiledModel:
    """A model on a device. Made by :func:`tflgpu.compile`; thread-safe, picklable, a context manager.

    inputs, outputs: TensorInfo of each. report: what became of each operator. seconds: what each stage of compiling
    took.
    """

    def __init__(self, data: bytes, options: Options) -> None:
        self._data, self.options = data, options
        self._lock = threading.Lock()
        clock = _Stopwatch()
        self.device = choose(options.device)
        clock.lap("device")
        lowered, self.plan = plan_model(data, options, self.device)
        clock.lap("plan")
        self.source: KernelSource = render(self.plan)
        clock.lap("render")
        session = open_session(self.device)
        clock.lap("context")
        self._kernels = build(self.source, session)
        clock.lap("build")
        self._executor: Executor | None = Executor(self.plan, self._kernels, session)
        clock.lap("upload")
        self.seconds: Mapping[str, float] = clock.laps
        self.report = make_report(lowered, self.plan)
        self.inputs = tuple(
            _info(name, t, self.plan.graph[i].shape)
            for (name, t), i in zip(lowered.inputs, self.plan.graph.inputs, strict=True)
        )
        self.outputs = tuple(
            _info(name, t, self.plan.graph[i].shape)
            for (name, t), i in zip(lowered.outputs, self.plan.graph.outputs, strict=True)
        )

    def run(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """One inference: NHWC arrays by name, in order, or one alone; every output by name.

        Raises ValueError for inputs that do not fit, DeviceError if the device fails or the model is closed.
        """
        arrays = [_checked(info, array) for info, array in zip(self.inputs, self._ordered(inputs), strict=True)]
        with self._lock:
            if self._executor is None:
                raise ValueError("this model is closed; compile it again")
            results = self._executor.run(arrays)
        return {i.name: r.astype(i.dtype, copy=False) for i, r in zip(self.outputs, results, strict=True)}

    def profile(self, inputs: Inputs, runs: int = 10) -> Profile:
        """Device time of each kernel, the median of ``runs`` inferences on a queue of its own."""
        arrays = [_checked(info, array) for info, array in zip(self.inputs, self._ordered(inputs), strict=True)]
        session = open_session(self.device, profiling=True)
        executor = Executor(self.plan, build(self.source, session), session)
        times = np.median([executor.profile(arrays) for _ in range(runs + 1)][1:], axis=0)
        codes = {o.index: o.code for o in self.report.operators}
        return Profile(
            tuple(
                KernelTime(name, tuple(codes[i] for i in planned.node.sources), float(seconds), planned.kernel.macs)
                for name, planned, seconds in zip(self.source.names, self.plan.kernels, times, strict=True)
            )
        )

    def close(self) -> None:
        """Release the device memory; running afterwards is an error, closing again is not."""
        with self._lock:
            self._executor = None

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
        return f"<CompiledModel on {self.device.name}: {len(self.plan.kernels)} kernels>"


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now


def _info(name: str, tensor: FileTensor, shape: Shape) -> TensorInfo:
    return TensorInfo(name, shape, tensor.dtype, tensor.quantization)


def _checked(info: TensorInfo, value: ArrayLike) -> NDArray[Any]:
    array = np.asarray(value)
    if array.shape != info.shape:
        raise ValueError(f"input {info.name!r} has shape {list(array.shape)}; {list(info.shape)} was expected")
    if array.dtype.name != info.dtype and not (array.dtype.kind == "f" and info.dtype == "float32"):
        raise ValueError(f"input {info.name!r} has element type {array.dtype}; {info.dtype} was expected")
    return array
