"""``load_delegate``: programs that load TFLite's GPU delegate get a device of tflgpu, and its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any

from tflgpu.checking.option_declarations import flat_names
from tflgpu.options import Interface, Options, Shapes, options_of

# Translates the text of an option to options of tflgpu, by their flat names. Raises KeyError or ValueError if the text
# does not fit.
Translation = Callable[[str], dict[str, Any]]

# Groups of options that an Interpreter does not take: the file or a method decides them.
DECIDED_BY_FILE_OR_METHODS = (Shapes, Interface)

# Options of TFLite's delegate that have nothing to decide here. A token only saves reading the model, which an
# Interpreter does anyway.
WITHOUT_EFFECT = frozenset(
    (
        "delegate_serialize_token",
        "experimental_enable_quant",
        "inference_priority2",
        "inference_priority3",
        "max_delegated_partitions",
        "model_token",
        "wait_type",
    )
)

GL_ONLY = 4  # of the bits in TFLite's experimental_flags


def _switch(field: str, off: str, on: str) -> Translation:
    no, yes = {field: off}, {field: on}
    values = {"0": no, "false": no, "1": yes, "true": yes, "-1": {}}  # -1 leaves it to other options
    return lambda value: values[value.lower()]


def _choice(field: str, *values: str) -> Translation:
    """TFLite's enumeration, which counts from 0."""
    return lambda value: {field: dict(enumerate(values))[int(value)]}


def _path(value: str) -> dict[str, Any]:
    return {"cache_dir": value}


def _backend(value: str) -> dict[str, Any]:
    return {"": {}, "cl": {}}[value]


def _flags(value: str) -> dict[str, Any]:
    return {0: {}}[int(value) & GL_ONLY]


# Options of TFLite's delegate and of its benchmark_model -> tflgpu's. Where a loss of precision is allowed,
# the device decides whether half precision is worth it.
TRANSLATED: Mapping[str, Translation] = {
    "backend": _backend,
    "delegate_serialize_dir": _path,
    "experimental_flags": _flags,
    "inference_for_sustained_speed": _switch("tuning", "none", "exhaustive"),
    "inference_preference": _choice("tuning", "none", "exhaustive", "fast"),  # single answer, sustained, balanced
    "inference_priority1": _choice("precision", "auto", "fp32", "auto", "auto"),  # 1 is the greatest precision
    "precision_loss_allowed": _switch("precision", "fp32", "auto"),
    "serialization_dir": _path,
}

OWN = frozenset(
    name for name, place in flat_names(Options).items() if place.group not in DECIDED_BY_FILE_OR_METHODS
).difference(WITHOUT_EFFECT)


class NoDelegateError(ValueError, OSError):
    """A library that cannot be loaded as a delegate.

    LiteRT raises OSError if there is no such library, and ValueError if it refuses; programs are ready for either.
    """


class Delegate:
    """TFLite's GPU delegate by its name, and what its options say in tflgpu's terms: ``options``.

    library: a name or path with ``gpu`` in its file name, such as ``libtensorflowlite_gpu_delegate.so``. No such
    file is needed. options: TFLite's for this delegate, and tflgpu's by the names that docs/reference/options.md has
    for a delegate, such as ``device`` and ``cpu_ops``.

    Raises ValueError for another library or option.
    """

    def __init__(self, library: str | bytes | PathLike[str], options: Mapping[str, object] | None = None) -> None:
        if "gpu" not in Path(fsdecode(library)).name.lower():
            raise NoDelegateError(
                "only TFLite's GPU delegate can be loaded, for instance libtensorflowlite_gpu_delegate.so"
            )
        chosen: dict[str, Any] = {}
        for key, value in (options or {}).items():
            chosen |= _translated(str(key), value)
        try:
            self.options = options_of(chosen)
        except TypeError as error:
            raise ValueError(str(error)) from error


def load_delegate(library: str | bytes | PathLike[str], options: Mapping[str, object] | None = None) -> Delegate:
    """Return a delegate for ``Interpreter(experimental_delegates=[...])``.

    Args:
        library: The path that a script has for its GPU delegate. It is not loaded.
        options: Options of that delegate as texts, and options of tflgpu by their flat names.

    Raises:
        ValueError: An option is unknown or has a wrong value, as in LiteRT.
    """
    try:
        return Delegate(library, options)
    except ValueError as error:
        raise NoDelegateError(f"Failed to load delegate from {fsdecode(library)}\n{error}") from error


def _translated(key: str, value: object) -> dict[str, Any]:
    """Options of tflgpu, by their flat names, for one option of a delegate. Raises ValueError for an unknown one."""
    name = key.removeprefix("gpu_").removeprefix("is_")
    if name in TRANSLATED:
        try:
            return TRANSLATED[name](str(value))
        except (KeyError, ValueError):
            raise ValueError(f"option {key!r} cannot be {value!r}") from None
    if name in WITHOUT_EFFECT:
        return {}
    if key not in OWN:
        known = ", ".join(sorted(OWN | TRANSLATED.keys() | WITHOUT_EFFECT))
        raise ValueError(f"unknown option {key!r}; known are: {known}")
    return {key: value}


def chosen_options(delegates: Iterable[object], options: Options | None) -> Options | None:
    """Return the options of the first delegate of tflgpu, else ``options``.

    Args:
        delegates: Also those of LiteRT, which choose among its CPU kernels and change nothing here.
        options: The options that were given to the Interpreter itself.

    Raises:
        AttributeError: One of them is no delegate at all, as in LiteRT.
        ValueError: Both a delegate and ``options`` are given.
    """
    chosen = None
    for delegate in delegates:
        if isinstance(delegate, Delegate):
            chosen = chosen or delegate.options
        elif not hasattr(delegate, "_get_native_delegate_pointer"):
            raise AttributeError(f"{delegate!r} is no delegate; load_delegate returns one")
    if chosen is not None and options is not None:
        raise ValueError("give options to load_delegate or to the Interpreter, not to both")
    return chosen or options
