"""Every error and warning that tflgpu raises on purpose.

    TflgpuError
    ├── ModelError          the model file is damaged, or contradicts itself
    ├── UnsupportedError    the model is fine, but some operator cannot run on the device (.reasons)
    ├── DeviceError         no usable OpenCL device, or the device failed
    ├── BuildError          the device compiler refused generated source (.source, .log)
    ├── InternalError       a fault of tflgpu itself, to be reported
    ├── CacheMissError      Options(cache="require"), and the cache does not have the model
    ├── CacheDirectoryError other users can write to the cache directory
    └── BundleError         a bundle is not signed or pinned as the options ask for

    FallbackWarning         some operators run on the CPU
    CacheWarning            the disk cache is damaged or cannot be written; this costs time only
    DeviceWarning           a CPU is taken, because the machine's GPU has no OpenCL driver
    PluginWarning           a package that adds operators cannot be imported
    PrecisionWarning        a model's answers in half precision are far from those in float

A TflgpuError is a ``RuntimeError``, which is what TensorFlow Lite raises for a model that it cannot run.
Wrong arguments to a public function raise the usual ``TypeError`` or ``ValueError``, files that cannot be read an
``OSError``. ``MemoryError`` and ``KeyboardInterrupt`` pass as they are: they concern the process, not the model.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = [
    "BuildError",
    "BundleError",
    "CacheDirectoryError",
    "CacheMissError",
    "CacheWarning",
    "DeviceError",
    "DeviceWarning",
    "FallbackWarning",
    "InternalError",
    "ModelError",
    "PluginWarning",
    "PrecisionWarning",
    "TflgpuError",
    "UnsupportedError",
]


class TflgpuError(RuntimeError):
    """Base of all errors raised by tflgpu."""


class ModelError(TflgpuError):
    """A file is no TensorFlow Lite model, contradicts itself, or has changed since it was read.

    Also: the tokenizer or the prompt template of a language model fails.
    """


class UnsupportedError(TflgpuError):
    """Some operators of a valid model cannot run on the device.

    ``reasons`` has one sentence for each obstacle.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("the model cannot run on the device:\n" + "\n".join(f"  - {r}" for r in self.reasons))

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[tuple[str, ...]]]:
        return type(self), (self.reasons,)


class DeviceError(TflgpuError):
    """No OpenCL device fits the request, memory does not suffice, or a run on the device fails."""


class BuildError(TflgpuError):
    """The device's OpenCL compiler refused generated source.

    ``source`` is the program text and ``log`` the compiler's output. Please add both to a bug report.
    """

    def __init__(self, message: str, source: str, log: str) -> None:
        self.message, self.source, self.log = message, source, log
        super().__init__(f"{message}\n{log}")

    def __reduce__(self) -> tuple[type[BuildError], tuple[str, str, str]]:
        return type(self), (self.message, self.source, self.log)


class InternalError(TflgpuError):
    """tflgpu contradicts itself: a bug, whatever the model is. ``__cause__`` is the error that shows it.

    where: what it was doing, for which operator or pass. what: the error in words.
    """

    def __init__(self, where: str, what: str) -> None:
        self.where, self.what = where, what
        super().__init__(
            f"internal error while {where}: {what}; please report it with the output of "
            "`tflgpu show MODEL --stage model`, which has no weights"
        )

    def __reduce__(self) -> tuple[type[InternalError], tuple[str, str]]:
        return type(self), (self.where, self.what)


@contextmanager
def internal_faults(where: str) -> Iterator[None]:
    """Turn an unforeseen exception here, or in the function that this decorates, into an InternalError.

    tflgpu's own errors pass, so the innermost place is named; and so do warnings that the user has made errors.

    Args:
        where: The activity, for the message, as in "while ...".

    Raises:
        InternalError: Any other exception was raised, except MemoryError.
    """
    try:
        yield
    except (TflgpuError, MemoryError, Warning):
        raise
    except Exception as error:
        raise InternalError(where, f"{type(error).__name__}: {error}") from error


@contextmanager
def catching_panics() -> Iterator[None]:
    """Turn a panic of a library in Rust into a RuntimeError: its PanicException is a BaseException alone."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # each library has a class of its own, which it does not export
            raise
        raise RuntimeError(f"the library panicked: {error}") from error


class CacheMissError(TflgpuError):
    """``Options(cache="require")`` was given, and the cache does not have the model for this device and version."""


class CacheDirectoryError(TflgpuError):
    """Another user owns the cache directory or can write to it; its programs would run with this user's rights."""


class BundleError(TflgpuError):
    """A bundle is not one that ``Options.cache_files`` accepts by its key or digest, or a signature cannot be checked.

    Nothing of it is used.
    """


class CacheWarning(UserWarning):
    """Something is wrong with the disk cache. This costs the time of a compilation only."""


class FallbackWarning(UserWarning):
    """Some operators of a model run on the CPU, and tensors cross to and from the device."""


class DeviceWarning(UserWarning):
    """A model does not run as was asked for: on a CPU although the machine has a GPU, or not in a persistent kernel.

    The text says why.
    """


class PluginWarning(UserWarning):
    """A package that adds operators cannot be imported. Models that do not use its operators run as before."""


class PrecisionWarning(UserWarning):
    """In half precision outputs of a model are off by more than 5% of their range, or a value was capped at 65504.

    The text names the first such tensor, and what to do.
    """


def warn_caller(message: str, category: type[Warning]) -> None:
    """Give a warning that points at the line outside of tflgpu which led here, however deep that is.

    Calls of ``dataclasses.replace`` and ``copy.replace`` count as tflgpu's.

    Args:
        message: The text, a whole sentence without a full stop.
        category: One of the warnings of this module.
    """
    frame, level, own = sys._getframe(1), 2, (__package__, "dataclasses", "copy")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in own:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


# The requirements of extras, as pyproject.toml has them. They can be installed beside any tflgpu, from a checkout or
# from a wheel.
REQUIREMENTS = {
    "cpu": ("intel-opencl-rt>=2025", "intel-cmplr-lib-rt>=2025"),
    "fallback": ("ai-edge-litert>=1.2",),
    "evaluate": ("pycocotools>=2.0.7",),
    "language": ("tokenizers>=0.20", "sentencepiece>=0.2", "litert-lm-builder>=0.18", "protobuf>=6.31"),
    "grammar": ("llguidance>=1.5",),
    "openai": ("fastapi>=0.115", "uvicorn>=0.30", "prometheus-client>=0.20"),
    "sign": ("cryptography>=42",),
    "predict": ("pyarrow>=17",),
    "ray": ("ray[client,data]>=2.60",),
}


def install_command(extra: str) -> str:
    """Return a command for messages, in backquotes: ``pip install "ai-edge-litert>=1.2"``.

    Args:
        extra: One of tflgpu's extras. Its requirements are named, because no package index has tflgpu.
    """
    quoted = (f'"{requirement}"' for requirement in REQUIREMENTS[extra])
    return f"`pip install {' '.join(quoted)}`"
