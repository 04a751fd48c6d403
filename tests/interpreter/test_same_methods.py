"""Everything public in LiteRT's module is there under the same name, with the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from types import FunctionType
from typing import Any

import ai_edge_litert.interpreter as litert
import pytest

import tflgpu
import tflgpu.interpreter

# Private to LiteRT, but known to those who print models.
PRIVATE = ("_get_full_signature_list", "_get_op_details", "_get_ops_details", "_get_tensor_details")

CLASSES = ("Delegate", "Interpreter", "InterpreterWithCustomOps", "SignatureRunner")


def functions() -> Iterator[str]:
    yield "load_delegate"
    for name in CLASSES:
        for attribute, value in vars(getattr(litert, name)).items():
            if isinstance(value, FunctionType) and (
                not attribute.startswith("_") or attribute in ("__init__", "__call__", *PRIVATE)
            ):
                yield f"{name}.{attribute}"


def found(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults; an enumeration's members go by their names."""
    listed = inspect.signature(function).parameters.values()
    defaults = [p.default.name if isinstance(p.default, Enum) else p.default for p in listed]
    return [(p.name, p.kind, default) for p, default in zip(listed, defaults, strict=True)]


@pytest.mark.parametrize("name", list(functions()))
def test_arguments_are_litert_s(name: str) -> None:
    ours, theirs = parameters(found(tflgpu.interpreter, name)), parameters(found(litert, name))
    more = ours[len(theirs) :]
    # The runner's keywords are the names of its inputs, whatever theirs is called.
    ours, theirs = ([p if p[1] != inspect.Parameter.VAR_KEYWORD else p[1] for p in each] for each in (ours, theirs))
    assert ours[: len(theirs)] == theirs
    assert all(kind == inspect.Parameter.KEYWORD_ONLY for _, kind, _ in more)


def test_public_names_are_litert_s() -> None:
    public = {
        name
        for name, value in vars(litert).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == litert.__name__
    }
    assert public == set(tflgpu.interpreter.__all__)
    for name in CLASSES:
        attributes = {attribute for attribute in dir(getattr(litert, name)) if not attribute.startswith("_")}
        assert attributes <= set(dir(getattr(tflgpu.interpreter, name)))


def test_resolver_types_have_litert_s_numbers() -> None:
    ours, theirs = ({t.name: t.value for t in m.OpResolverType} for m in (tflgpu.interpreter, litert))
    assert ours == theirs


def test_there_is_one_interpreter() -> None:
    assert tflgpu.Interpreter is tflgpu.interpreter.Interpreter
