"""The options of a compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from reprlib import repr as shortened
from typing import Any, Literal, get_args

from tflgpu.checking.option_fields import CHECKS

Precision = Literal["auto", "fp32", "fp16", "fp16_fast"]
ExecutorChoice = Literal["auto", "launch", "persistent", "claiming"]
KernelFamily = Literal["auto", "cpu", "gpu"]
Quantized = Literal["simulate", "float"]
Fallback = Literal["auto", "forbid"]
Tuning = Literal["none", "fast", "exhaustive"]
CostModelChoice = Literal["auto", "measured", "built-in"]
CacheMode = Literal["readwrite", "read", "require", "off"]

CHOICES = {
    "precision": Precision,
    "executor": ExecutorChoice,
    "fallback": Fallback,
    "quantized": Quantized,
    "cache": CacheMode,
    "kernels": KernelFamily,
    "tuning": Tuning,
    "cost_model": CostModelChoice,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for :func:`tflgpu.compile`. An object is immutable, so it can serve many models.

    Attributes:
        precision: storage of activations and weights on the device. ``"fp32"``; ``"fp16"`` stores half precision and
            computes in float, and needs no device extension; ``"fp16_fast"`` also multiplies in half, and raises
            DeviceError on a device without ``cl_khr_fp16``; ``"auto"`` is fp16 on GPUs and fp32 elsewhere, and with a
            ``tolerance`` whatever keeps it.
        tolerance: with precision ``"auto"``, largest error of an output beside its answer in fp32, relative to its
            range: 0.01 is one percent. Tensors are stored in half but for the few that would take an output further
            than that on ``calibration``; ``report.mixed`` names them. Integers that are no quantized numbers, such as
            the places of an ARG_MAX, are left out. Takes a minute at most, once: the cache keeps the result.
        calibration: inputs to try, a list of what :meth:`CompiledModel.run` takes; by default a few pictures or signals
            and some noise, the same ones each time, scaled as the file says. Better are inputs such as the model will
            get.
        device: ``"auto"`` (the environment variable ``TFLGPU_DEVICE`` if set, else the best device found), an index of
            :func:`tflgpu.devices`, a type (``"cpu"``, ``"gpu"``: the best of it), or a part of a device's or platform's
            name.
        executor: ``"launch"`` runs each kernel by a launch of its own; ``"persistent"`` runs all kernels in one launch
            with barriers between dependent kernels, and needs work-groups that all run at the same time and one buffer
            that has all of the model's memory, or it is ``"launch"``, with a DeviceWarning; ``"claiming"`` runs all
            kernels in one launch, too, whose work-groups share out the work as they go, and needs a CPU with the atomic
            operations of OpenCL C 2.0. ``"auto"`` is ``"claiming"`` on such CPUs. On NVIDIA's GPUs, where a launch
            costs more than a small kernel, it is the faster one of the other two: the sizes of the kernels decide, or a
            measurement, which is kept with the model. Elsewhere it is ``"launch"``. On CPUs a persistent kernel has a
            single work-group and is slow: it is for tests only.
        fallback: what to do with operators that cannot run on the device: ``"auto"`` leaves them to LiteRT's
            interpreter on the CPU (the extra ``fallback``), with a FallbackWarning; ``"forbid"`` raises
            UnsupportedError with every reason.
        outputs: the tensors to return instead of the model's own outputs, by name or by index in the file; intermediate
            ones, too. An index that has no name of its own is returned as ``"NAME_INDEX"``.
        signature: key of the signature to run; by default the first one, or the main subgraph.
        quantized: ``"simulate"`` rounds each quantized activation to what its integer type can hold, as the CPU's
            integer kernels do; ``"float"`` does not round. It clamps activations to the range of their integers, which
            is what is left of a ReLU6 in many files; ``report.operators[].notes`` name those that it does not clamp.
        cpu_ops: operators to leave to LiteRT's interpreter although the device could run them: codes (``"SOFTMAX"``),
            indices as `tflgpu inspect` prints them, or ranges of indices (``range(60, 66)``).
        cpu_timeout: seconds. What LiteRT has not run before, it prepares and runs first in a process of its own, which
            may take this long for each part of the model and 4 GiB of memory, and as much again for large parts; that
            it runs is kept in the cache. None: no such process, also no limits.
        batch: size of the first axis of every input; replaces the file's.
        input_shapes: shapes of inputs by name; replace the file's. With ``batch`` or ``input_shapes`` the model is
            planned for these shapes. :meth:`CompiledModel.run` also plans anew for inputs whose free dimensions (-1 in
            the file) have other sizes.
        uint8_inputs: float inputs that callers give as bytes, such as camera frames: ``{name: (mean, std)}``. The
            device computes ``(byte - mean) / std``, so that only a quarter of the bytes goes to the device.
        cache: use of the disk cache. ``"readwrite"`` reads it and stores what was compiled; ``"read"`` stores nothing;
            ``"require"`` raises CacheMissError instead of compiling; ``"off"`` neither reads nor stores.
        cache_dir: the cache's directory, or a sequence of directories and bundles: the first one with the model is
            read, the first writable directory is written. ``~`` is the home directory. By default the environment
            variable ``TFLGPU_CACHE_DIR`` or the platform's cache directory.
        bundle_key: Ed25519 public key, 64 hexadecimal digits, that every bundle in ``cache_dir`` must be signed with,
            as ``tflgpu precompile-cache --sign`` does (the extra ``sign``). BundleError for any other.
        bundle_digest: SHA-256 that every bundle must have, 64 hexadecimal digits, or a sequence of allowed ones.
        cache_limit: bytes that the directory may take; the entries unused for longest are deleted first.
        model_token: number by which the cache finds the model, by default the Fingerprint64 of its bytes. With a token,
            a model file whose size and times are unchanged is not read at all, unless it has free dimensions.
        tuning: how parameters of kernels, such as tile sizes, are chosen: ``"none"`` takes the best by a cost model of
            the device, ``"fast"`` measures the few best by that model, ``"exhaustive"`` measures all. Both also measure
            operators as one kernel and as several; ``report.fusions`` names what the model had chosen otherwise.
            Measurements are kept in the cache, also for other models with equal layers.
        cost_model: source of the cost model's numbers, by which plans for GPUs choose tiles and fusions. ``"auto"``
            (the environment variable ``TFLGPU_COST_MODEL`` if set) takes what the cache has of the device, else what
            tflgpu brings along (tflgpu/measure/known_devices.json); any other GPU is measured for a second at its first
            compilation with a cache. ``"measured"`` measures any device if need be; ``"built-in"`` takes numbers of
            another GPU.
        checks: :meth:`CompiledModel.run` raises ValueError, which names the operator, for indices out of range,
            divisors of zero and negative exponents of integers, where LiteRT reports an error. Without it such an index
            becomes the nearest in range (docs/reference/numerics.md). Each operator to check costs a kernel or two.
        kernels: family of kernels; ``"auto"`` goes by the device's type. The other family also runs, but slower: it is
            useful for comparisons, and to test GPU kernels without a GPU.
    """

    precision: Precision = "auto"
    device: str | int = "auto"
    executor: ExecutorChoice = "auto"
    fallback: Fallback = "auto"
    outputs: Sequence[str | int] | None = None
    signature: str | None = None
    quantized: Quantized = "simulate"
    cpu_ops: Sequence[str | int | range] = ()
    cpu_timeout: float | None = 60.0
    batch: int | None = None
    input_shapes: Mapping[str, Sequence[int]] | None = field(default=None, hash=False)
    uint8_inputs: Mapping[str, tuple[float, float]] | None = field(default=None, hash=False)
    cache: CacheMode = "readwrite"
    cache_dir: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None
    bundle_key: str | None = None
    bundle_digest: str | Sequence[str] | None = None
    cache_limit: int = 2 << 30
    model_token: int | None = None
    kernels: KernelFamily = "auto"
    tuning: Tuning = "none"
    cost_model: CostModelChoice = "auto"
    checks: bool = False
    tolerance: float | None = None
    calibration: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        """Check every field, and keep immutable copies: the caller can change what was given.

        Raises TypeError or ValueError, which names the field and says what was expected.
        """
        for name, kind in CHOICES.items():
            value, allowed = getattr(self, name), get_args(kind)
            if not isinstance(value, str) or value not in allowed:
                raise ValueError(f"Options.{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
        for name, check in CHECKS.items():
            value = getattr(self, name)
            if value is not None or getattr(type(self), name) is not None:  # the default
                object.__setattr__(self, name, check(name, value))
        if self.tolerance is not None and self.precision != "auto":
            raise ValueError(f"Options.tolerance chooses the precision; {self.precision!r} was given, too")
        if self.calibration is not None and self.tolerance is None:
            raise ValueError("Options.calibration is for Options.tolerance, which is not given")


def check_options(options: object) -> Options:
    """The options that a caller gave, None for the default ones. Raises TypeError for anything else."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        example = "tflgpu.Options(precision='fp32')"
        raise TypeError(f"options is {shortened(options)}; an object was expected, such as {example}")
    return options
