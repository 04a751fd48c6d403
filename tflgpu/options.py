"""The options of a compilation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from operator import index
from os import PathLike, fspath
from re import fullmatch
from reprlib import repr as shortened
from typing import Any, Literal, get_args

Precision = Literal["auto", "fp32", "fp16", "fp16_fast"]
ExecutorChoice = Literal["auto", "launch", "persistent"]
KernelFamily = Literal["auto", "cpu", "gpu"]
Quantized = Literal["simulate", "float"]
Fallback = Literal["auto", "forbid"]
Tuning = Literal["none", "fast", "exhaustive"]
CostModelChoice = Literal["auto", "measured", "built-in"]
CacheMode = Literal["readwrite", "read", "require", "off"]
MAX_TIMEOUT = 86400.0  # seconds: a day

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

GREATEST_SIZE = 2**31 - 1  # of an axis: the file counts in 32 bits with a sign

GREATEST_TOKEN = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for :func:`tflgpu.compile`. An object is immutable, so it can serve many models.

    precision: storage of activations and weights on the device. ``"fp32"``; ``"fp16"`` stores half precision
        and computes in float, and needs no device extension; ``"fp16_fast"`` also multiplies in half, and raises
        DeviceError on a device without ``cl_khr_fp16``; ``"auto"`` is fp16 on GPUs and fp32 elsewhere.
    device: ``"auto"`` (the environment variable ``TFLGPU_DEVICE`` if set, else the best device found), an
        index of :func:`tflgpu.devices`, a type (``"cpu"``, ``"gpu"``: the best of it), or a part of a device's or
        platform's name.
    executor: ``"launch"`` runs each kernel by a launch of its own; ``"persistent"`` runs all kernels in one launch with
        barriers between dependent kernels, and needs work-groups that all run at the same time. ``"auto"`` is the
        faster one on NVIDIA's GPUs, where a launch costs more than a small kernel, and ``"launch"`` elsewhere. The
        sizes of the kernels decide which is the faster, or a measurement, which is kept with the model. On CPUs a
        persistent kernel has a single work-group and is slow: it is for tests only.
    fallback: what to do with operators that cannot run on the device: ``"auto"`` leaves them to LiteRT's interpreter
        on the CPU (the extra ``fallback``), with a FallbackWarning; ``"forbid"`` raises UnsupportedError with every
        reason.
    outputs: the tensors to return instead of the model's own outputs, by name or by index in the file; intermediate
        ones, too. An index that has no name of its own is returned as ``"NAME_INDEX"``.
    signature: key of the signature to run; by default the first one, or the main subgraph.
    quantized: ``"simulate"`` rounds each quantized activation to what its integer type can hold, as the CPU's integer
        kernels do; ``"float"`` does not round. It clamps activations to the range of their integers, which is what is
        left of a ReLU6 in many files; ``report.operators[].notes`` name those that it does not clamp.
    cpu_ops: operators to leave to LiteRT's interpreter although the device could run them: codes (``"SOFTMAX"``),
        indices as `tflgpu inspect` prints them, or ranges of indices (``range(60, 66)``).
    cpu_timeout: seconds. What LiteRT has not run before, it prepares and runs first in a process of its own, which may
        take this long for each part of the model and 4 GiB of memory, and as much again for large parts; that it runs
        is kept in the cache. None: no such process, also no limits.
    batch: size of the first axis of every input; replaces the file's.
    input_shapes: shapes of inputs by name; replace the file's. With ``batch`` or ``input_shapes`` the model is planned
        for these shapes. :meth:`CompiledModel.run` also plans anew for inputs whose free dimensions (-1 in the file)
        have other sizes.
    uint8_inputs: float inputs that callers give as bytes, such as camera frames: ``{name: (mean, std)}``. The device
        computes ``(byte - mean) / std``, so that only a quarter of the bytes goes to the device.
    cache: use of the disk cache. ``"readwrite"`` reads it and stores what was compiled; ``"read"`` stores nothing;
        ``"require"`` raises CacheMissError instead of compiling; ``"off"`` neither reads nor stores.
    cache_dir: the cache's directory, or a sequence of directories and bundles: the first one with the model is read,
        the first writable directory is written. ``~`` is the home directory. By default the environment variable
        ``TFLGPU_CACHE_DIR`` or the platform's cache directory.
    bundle_key: Ed25519 public key, 64 hexadecimal digits, that every bundle in ``cache_dir`` must be signed with, as
        ``tflgpu precompile-cache --sign`` does (the extra ``sign``). BundleError for any other.
    bundle_digest: SHA-256 that every bundle must have, 64 hexadecimal digits, or a sequence of allowed ones.
    cache_limit: bytes that the directory may take; the entries unused for longest are deleted first.
    model_token: number by which the cache finds the model, by default the Fingerprint64 of its bytes. With a token, a
        model file whose size and times are unchanged is not read at all, unless it has free dimensions.
    tuning: how parameters of kernels, such as tile sizes, are chosen: ``"none"`` takes the best by a cost model of the
        device, ``"fast"`` measures the few best by that model, ``"exhaustive"`` measures all. Measurements are kept in
        the cache, also for other models with equal layers.
    cost_model: where the numbers come from by which planning for GPUs chooses tiles and fusions. ``"auto"`` (the
        environment variable ``TFLGPU_COST_MODEL`` if set) takes what the cache has of the device; if it has nothing, a
        GPU is measured for a second at its first compilation with a cache. ``"measured"`` measures any device if need
        be; ``"built-in"`` takes numbers of another GPU.
    checks: :meth:`CompiledModel.run` raises ValueError, which names the operator, for indices out of range, divisors of
        zero and negative exponents of integers, where LiteRT reports an error. Without it such an index becomes the
        nearest in range (docs/reference/numerics.md). Each operator to check costs a kernel or two.
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


def check_options(options: object) -> Options:
    """The options that a caller gave, None for the default ones. Raises TypeError for anything else."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        example = "tflgpu.Options(precision='fp32')"
        raise TypeError(f"options is {shortened(options)}; an object was expected, such as {example}")
    return options


def _mistyped(name: str, value: object, expected: str) -> TypeError:
    return TypeError(f"Options.{name} is {shortened(value)}; {expected} was expected")


def whole_number(
    name: str, value: Any, least: int = 1, most: int = GREATEST_SIZE, expected: str = "a whole number"
) -> int:
    """An argument of a caller's as an int; numpy's are fine. Raises TypeError or ValueError, which names it."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} is {shortened(value)}; {expected} was expected") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; it must be from {least} to {most}")
    return number


def _each(name: str, value: Any, expected: str) -> tuple[Any, ...]:
    """The items of a sequence; a text alone is none."""
    if isinstance(value, str | bytes):
        raise TypeError(f"Options.{name} is one text; give a list of {expected}: [{shortened(value)}]")
    if not isinstance(value, Iterable):
        raise _mistyped(name, value, f"a list of {expected}")
    return tuple(value)


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, Hashable) or value not in (True, False):
        raise _mistyped(name, value, "True or False")
    return bool(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _mistyped(name, value, "a text")
    return value


def _device(name: str, value: Any) -> str | int:
    expected = "an index of tflgpu.devices() or a part of a device's name"
    return value if isinstance(value, str) else whole_number(f"Options.{name}", value, 0, expected=expected)


def _batch(name: str, value: Any) -> int:
    return whole_number(f"Options.{name}", value)


def _token(name: str, value: Any) -> int:
    return whole_number(f"Options.{name}", value, 0, GREATEST_TOKEN)


def _seconds(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise _mistyped(name, value, "a number of seconds, or None") from None
    if not 0 < seconds <= MAX_TIMEOUT:
        raise ValueError(f"Options.{name} is {seconds:g}; it must be more than 0 and at most {MAX_TIMEOUT:g} seconds")
    return seconds


def _bytes(name: str, value: Any) -> int:
    return whole_number(f"Options.{name}", value, 1, GREATEST_TOKEN)


def _outputs(name: str, value: Any) -> tuple[str | int, ...]:
    expected = "a tensor's name or index"
    tensors = tuple(
        o if isinstance(o, str) else whole_number(f"Options.{name}", o, 0, expected=expected)
        for o in _each(name, value, "tensor names")
    )
    if not tensors:
        raise ValueError(f"Options.{name} is empty; at least one tensor must be named")
    return tensors


def _operators(name: str, value: Any) -> tuple[str | int | range, ...]:
    operators = _each(name, value, "operators")
    expected = "an operator's code or index, or a range of indices"
    return tuple(
        o if isinstance(o, str | range) else whole_number(f"Options.{name}", o, 0, expected=expected) for o in operators
    )


def _by_input(name: str, value: Any, expected: str) -> Iterator[tuple[str, Any]]:
    """Names of inputs, and what is given for each."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _mistyped(name, value, f"a dictionary from names of inputs to {expected}")
    yield from value.items()


def _shapes(name: str, value: Any) -> dict[str, tuple[int, ...]]:
    def shape(key: str, given: Any) -> tuple[int, ...]:
        place = f"{name}[{key!r}]"
        return tuple(whole_number(f"Options.{place}", size) for size in _each(place, given, "sizes"))

    return {key: shape(key, given) for key, given in _by_input(name, value, "shapes")}


def _scalings(name: str, value: Any) -> dict[str, tuple[float, float]]:
    scalings: dict[str, tuple[float, float]] = {}
    for key, pair in _by_input(name, value, "(mean, std)"):
        try:
            mean, std = map(float, pair)
        except (TypeError, ValueError):
            raise _mistyped(f"{name}[{key!r}]", pair, "(mean, std)") from None
        if not (isfinite(mean) and isfinite(std) and std):
            raise ValueError(f"Options.{name} has mean {mean:g}, std {std:g} for {key!r}; std must not be 0")
        scalings[key] = mean, std
    return scalings


def _places(name: str, value: Any) -> str | PathLike[str] | tuple[str | PathLike[str], ...]:
    def place(given: Any) -> str | PathLike[str]:
        if not isinstance(given, str | PathLike):
            raise _mistyped(name, given, "a path")
        if not fspath(given):
            raise ValueError(f"Options.{name} is an empty path; '.' is the working directory")
        return given

    return place(value) if isinstance(value, str | PathLike) else tuple(map(place, _each(name, value, "paths")))


def _hexadecimal(name: str, value: Any) -> str:
    if not isinstance(value, str) or not fullmatch("[0-9a-fA-F]{64}", value):
        raise ValueError(f"Options.{name} is {shortened(value)}; 64 hexadecimal digits were expected")
    return value.lower()


def _digests(name: str, value: Any) -> tuple[str, ...]:
    digests = [value] if isinstance(value, str) else _each(name, value, "digests")
    return tuple(_hexadecimal(name, digest) for digest in digests)


# What makes the value of a field that is kept of the one that was given. None stays None where it is the default.
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "device": _device,
    "outputs": _outputs,
    "signature": _text,
    "cpu_ops": _operators,
    "cpu_timeout": _seconds,
    "batch": _batch,
    "input_shapes": _shapes,
    "uint8_inputs": _scalings,
    "cache_dir": _places,
    "bundle_key": _hexadecimal,
    "bundle_digest": _digests,
    "cache_limit": _bytes,
    "model_token": _token,
    "checks": _switch,
}
