"""The options of a compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from os import PathLike
from typing import Literal, get_args

Precision = Literal["auto", "fp32", "fp16"]

ExecutorChoice = Literal["auto", "launch", "persistent"]

KernelFamily = Literal["auto", "cpu", "gpu"]

Quantized = Literal["simulate", "float"]

Fallback = Literal["auto", "forbid"]

Tuning = Literal["none", "fast", "exhaustive"]

CacheMode = Literal["readwrite", "read", "require", "off"]

CHOICES = {
    "precision": Precision,
    "executor": ExecutorChoice,
    "fallback": Fallback,
    "quantized": Quantized,
    "cache": CacheMode,
    "kernels": KernelFamily,
    "tuning": Tuning,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for :func:`tflgpu.compile`. An object is immutable, so it can serve many models.

    precision: storage of activations and weights on the device. ``"fp32"``; ``"fp16"`` stores half precision
        and computes in float, and needs no device extension; ``"auto"`` is fp16 on GPUs and fp32 elsewhere.
    device: ``"auto"`` (the environment variable ``TFLGPU_DEVICE`` if set, else the best device found), an
        index of :func:`tflgpu.devices`, or a part of a device's or platform's name.
    executor: ``"launch"`` runs each kernel by a launch of its own; ``"persistent"`` runs all kernels in one launch with
        barriers between dependent kernels, and needs work-groups that all run at the same time. ``"auto"`` is the
        faster one on NVIDIA's GPUs, where a launch costs more than a small kernel, and ``"launch"`` elsewhere. The
        sizes of the kernels decide which is the faster, or a measurement, which is kept with the model. On CPUs a
        persistent kernel has a single work-group and is slow: it is for tests only.
    fallback: what to do with operators that cannot run on the device: ``"auto"`` leaves them to LiteRT's interpreter
        on the CPU (the extra ``fallback``), with a FallbackWarning; ``"forbid"`` raises UnsupportedError with every
        reason.
    outputs: names of the tensors to return instead of the model's own outputs; any intermediate tensor may be named.
    signature: key of the signature to run; by default the first one, or the main subgraph.
    quantized: ``"simulate"`` rounds each quantized activation to what its integer type can hold, as the CPU's integer
        kernels do; ``"float"`` does not round. It clamps activations to the range of their integers, which is what is
        left of a ReLU6 in many files; ``report.operators[].notes`` name those that it does not clamp.
    cpu_ops: operators to leave to LiteRT's interpreter although the device could run them: codes (``"SOFTMAX"``),
        indices as `tflgpu inspect` prints them, or ranges of indices (``range(60, 66)``).
    batch: size of the first axis of every input; replaces the file's.
    input_shapes: shapes of inputs by name; replace the file's. With ``batch`` or ``input_shapes`` the model is planned
        for these shapes. :meth:`CompiledModel.run` also plans anew for inputs whose free dimensions (-1 in the file)
        have other sizes.
    uint8_inputs: float inputs that callers give as bytes, such as camera frames: ``{name: (mean, std)}``. The device
        computes ``(byte - mean) / std``, so that only a quarter of the bytes goes to the device.
    cache: use of the disk cache. ``"readwrite"`` reads it and stores what was compiled; ``"read"`` stores nothing;
        ``"require"`` raises CacheMissError instead of compiling; ``"off"`` neither reads nor stores.
    cache_dir: the cache's directory, or a sequence of directories and bundles: the first one with the model is read,
        the first writable directory is written. By default the environment variable ``TFLGPU_CACHE_DIR`` or the
        platform's cache directory.
    cache_limit: bytes that the directory may take; the entries unused for longest are deleted first.
    model_token: number by which the cache finds the model, by default the Fingerprint64 of its bytes. With a token, a
        model file whose size and times are unchanged is not read at all.
    tuning: how parameters of kernels, such as tile sizes, are chosen: ``"none"`` takes the best by a cost model of the
        device, ``"fast"`` measures the few best by that model, ``"exhaustive"`` measures all. Measurements are kept in
        the cache, also for other models with equal layers.
    kernels: family of kernels; ``"auto"`` goes by the device's type. The other family also runs, but slower: it is
        useful for comparisons, and to test GPU kernels without a GPU.
    """

    precision: Precision = "auto"
    device: str | int = "auto"
    executor: ExecutorChoice = "auto"
    fallback: Fallback = "auto"
    outputs: Sequence[str] | None = None
    signature: str | None = None
    quantized: Quantized = "simulate"
    cpu_ops: Sequence[str | int | range] = ()
    batch: int | None = None
    input_shapes: Mapping[str, Sequence[int]] | None = field(default=None, hash=False)
    uint8_inputs: Mapping[str, tuple[float, float]] | None = field(default=None, hash=False)
    cache: CacheMode = "readwrite"
    cache_dir: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None
    cache_limit: int = 2 << 30
    model_token: int | None = None
    kernels: KernelFamily = "auto"
    tuning: Tuning = "none"

    def __post_init__(self) -> None:
        for name, kind in CHOICES.items():
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed:
                raise ValueError(f"Options.{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
        if isinstance(self.outputs, str):
            raise TypeError(f"Options.outputs is one string; give a list of tensor names: [{self.outputs!r}]")
        if isinstance(self.cpu_ops, str):
            raise TypeError(f"Options.cpu_ops is one string; give a list of operators: [{self.cpu_ops!r}]")
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"Options.batch is {self.batch}; it must be positive")
        if self.cache_limit < 1:
            raise ValueError(f"Options.cache_limit is {self.cache_limit} bytes; it must be positive")
        if self.model_token is not None and not 0 <= self.model_token < 1 << 64:
            raise ValueError(f"Options.model_token is {self.model_token}; it must fit 64 bits without a sign")
        for name, (mean, std) in (self.uint8_inputs or {}).items():
            if not (isfinite(mean) and isfinite(std) and std):
                raise ValueError(f"Options.uint8_inputs has mean {mean}, std {std} for {name!r}; std must not be 0")
        # Immutable copies: the caller can change the originals while this object serves other models.
        object.__setattr__(self, "cpu_ops", tuple(self.cpu_ops))
        if isinstance(self.cache_dir, Sequence) and not isinstance(self.cache_dir, str):
            object.__setattr__(self, "cache_dir", tuple(self.cache_dir))
        if self.outputs is not None:
            object.__setattr__(self, "outputs", tuple(self.outputs))
        if self.input_shapes is not None:
            shapes = {name: tuple(map(int, shape)) for name, shape in self.input_shapes.items()}
            object.__setattr__(self, "input_shapes", shapes)
        if self.uint8_inputs is not None:
            pairs = {name: (float(mean), float(std)) for name, (mean, std) in self.uint8_inputs.items()}
            object.__setattr__(self, "uint8_inputs", pairs)
