"""``tflgpu.compile`` and what it returns."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tflgpu import serializer
from tflgpu.artifact import Artifact, CpuPart, DevicePart
from tflgpu.cache import Cache
from tflgpu.errors import CacheMissError, FallbackWarning
from tflgpu.instance import Instance, open_fastest
from tflgpu.layout import Shape
from tflgpu.options import Options
from tflgpu.report import Report
from tflgpu.runtime.devices import choose
from tflgpu.runtime.session import open_session
from tflgpu.source import ModelSource, read_bytes
from tflgpu.stopwatch import Stopwatch
from tflgpu.tensor_info import TensorInfo

Inputs = Mapping[str, ArrayLike] | Sequence[ArrayLike] | NDArray[Any]

# Plans that a model with free dimensions keeps, one for each set of input shapes that it was run with lately.
MAX_INSTANCES = 4


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
    signature or output, CacheMissError if the cache is required to have the model and does not, CacheDirectoryError if
    other users can write to the cache.
    """
    return CompiledModel(model, options or Options())


def inspect(model: ModelSource, options: Options | None = None) -> Report:
    """What of a model can run on a device, and why not the rest; needs no device."""
    from tflgpu.compiler import inspect_model

    return inspect_model(read_bytes(model), options or Options())


class CompiledModel:
    """A model on a device. Made by :func:`tflgpu.compile`; thread-safe, picklable, a context manager.

    inputs, outputs: TensorInfo of each. report: what became of each operator. seconds: what each stage of compiling
    took.
    """

    def __init__(self, model: ModelSource, options: Options) -> None:
        self._model, self.options = model, options
        self._lock = threading.Lock()
        self._instances: OrderedDict[tuple[Shape, ...], Instance] = OrderedDict()
        clock = Stopwatch()
        self.device = choose(options.device)
        self._target = self.device.target(options)
        clock.lap("device")
        self._session = open_session(self.device)
        clock.lap("context")
        instance = self._instantiate(options, clock)
        self.seconds: Mapping[str, float] = clock.laps
        self._artifact: Artifact = instance.artifact
        self._instances[tuple(i.shape for i in self.inputs)] = instance
        if any(isinstance(part, CpuPart) for part in self._artifact.parts):
            warnings.warn(self.report.warning, FallbackWarning, stacklevel=3)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(info for _, info in self._artifact.inputs)

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return tuple(info for _, info in self._artifact.outputs)

    @property
    def report(self) -> Report:
        return self._artifact.report

    @property
    def precision(self) -> str:
        """What ``Options.precision`` became: ``"fp32"`` or ``"fp16"``."""
        return "fp16" if self._target.storage == "half" else "fp32"

    @property
    def executor(self) -> str:
        """What ``Options.executor`` became: ``"launch"`` or ``"persistent"``."""
        return self._artifact.executor

    @property
    def source(self) -> str:
        """The generated OpenCL C of the device's part; of all its parts, if the CPU's operators split it."""
        return "\n".join(part.source for part in self._artifact.parts if isinstance(part, DevicePart))

    def run(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """One inference: NHWC arrays by name, in order, or one alone; every output by name.

        Axes that the file leaves open may have any size; the first run with new ones plans and compiles for them.
        Raises ValueError for inputs that do not fit or a closed model, DeviceError if the device fails.
        """
        arrays = self._arrays(inputs)
        with self._lock:
            instance = self._instance(arrays)
            values = instance.run(self._by_tensor(arrays))
            return {info.name: values[tensor] for tensor, info in instance.artifact.outputs}

    def reset_state(self) -> None:
        """Put every variable of the model back to its first value, as if the model had not run yet.

        Models keep state in resource variables and in variable tensors, such as those of an LSTM. It belongs to this
        object and to one set of input shapes: another object, a copy by pickle and a run with other shapes begin anew.
        Raises ValueError if the model is closed.
        """
        with self._lock:
            for instance in self._open_instances().values():
                instance.reset_state()

    def profile(self, inputs: Inputs, runs: int = 10) -> Profile:
        """Device time of each kernel, the median of ``runs`` inferences on a queue of its own.

        For the model's state it is one run.
        """
        arrays = self._arrays(inputs)
        codes = {o.index: o.code for o in self.report.operators}
        with self._lock:
            parts = self._instance(arrays).profile(self._by_tensor(arrays), runs)
        return Profile(
            tuple(
                KernelTime(launch.function, tuple(codes[i] for i in launch.operators), seconds, launch.macs)
                for part, times in parts
                for launch, seconds in zip(part.executable.launches, times, strict=True)
            )
        )

    def close(self) -> None:
        """Release the device memory; running afterwards is an error, closing again is not."""
        with self._lock:
            self._instances.clear()

    def _instantiate(self, options: Options, clock: Stopwatch) -> Instance:
        """From the cache if it can be; else compiled, and kept there."""
        cache = serializer.open_cache(options)
        if cache is None:
            instance = open_fastest(self._compile(options, clock), self._session, clock)
        else:
            key = serializer.model_key(self._model, options, self.device, self._target, cache)
            clock.lap("hash")
            stored = serializer.load(cache, key)
            clock.lap("load")
            if stored is None and options.cache == "require":
                raise CacheMissError(
                    f"the cache has no artifact {key.name} of this model for {self.device.name}, driver "
                    f"{self.device.driver}; `tflgpu precompile-cache` makes it"
                )
            rivals = self._compile(options, clock, cache) if stored is None else (stored,)
            instance = open_fastest(rivals, self._session, clock, cache)
            instance.keep_binaries(cache, clock)
            if instance.artifact != stored:
                serializer.store(cache, key, instance.artifact)
                clock.lap("store")
        instance.release_constants()
        return instance

    def _compile(self, options: Options, clock: Stopwatch, cache: Cache | None = None) -> tuple[Artifact, ...]:
        """Several artifacts if only measuring can tell which of them is the fastest."""
        # Only a cold start needs the compiler, and what it imports.
        from tflgpu.compiler import compile_rivals

        tuner = None
        if options.tuning != "none":
            from tflgpu.tuning import DeviceTuner

            tuner = DeviceTuner(self._session, options.tuning, cache)
        return compile_rivals(read_bytes(self._model), options, self._target, clock, tuner)

    def _instance(self, arrays: Sequence[NDArray[Any]]) -> Instance:
        """The plan for inputs of these shapes: one that is there, or a new one in place of the longest unused."""
        instances = self._open_instances()
        shapes = tuple(a.shape for a in arrays)
        if shapes not in instances:
            names = (info.name for info in self.inputs)
            options = replace(self.options, batch=None, input_shapes=dict(zip(names, shapes, strict=True)))
            instances[shapes] = self._instantiate(options, Stopwatch())
            if len(instances) > MAX_INSTANCES:
                instances.popitem(last=False)
        instances.move_to_end(shapes)
        return instances[shapes]

    def _open_instances(self) -> OrderedDict[tuple[Shape, ...], Instance]:
        """Raises ValueError if the model is closed."""
        if not self._instances:
            raise ValueError("this model is closed; compile it again")
        return self._instances

    def _arrays(self, inputs: Inputs) -> list[NDArray[Any]]:
        """The inputs in order, each checked."""
        return [_checked(info, array) for info, array in zip(self.inputs, self._ordered(inputs), strict=True)]

    def _by_tensor(self, arrays: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        return {tensor: array for (tensor, _), array in zip(self._artifact.inputs, arrays, strict=True)}

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

    def __reduce__(self) -> tuple[type[CompiledModel], tuple[ModelSource, Options]]:
        return CompiledModel, (
            self._model if isinstance(self._model, str | PathLike) else bytes(self._model),
            self.options,
        )

    def __repr__(self) -> str:
        return f"<CompiledModel on {self.device.name}: {self.report.kernels} kernels>"


def _checked(info: TensorInfo, value: ArrayLike) -> NDArray[Any]:
    array = np.asarray(value)
    fits = array.shape == info.shape or (
        array.ndim == len(info.shape)
        and all(
            given == wanted or (axis in info.free_axes and given > 0)
            for axis, (given, wanted) in enumerate(zip(array.shape, info.shape, strict=True))
        )
    )
    if not fits:
        shape = ["any" if axis in info.free_axes else str(d) for axis, d in enumerate(info.shape)]
        raise ValueError(f"input {info.name!r} has shape {list(array.shape)}; [{', '.join(shape)}] was expected")
    if array.dtype != info.dtype and not (array.dtype.kind == "f" and info.dtype == "float32"):
        raise ValueError(f"input {info.name!r} has element type {array.dtype}; {info.dtype} was expected")
    return np.asarray(array, info.dtype, order="C")
