"""Everything public in LiteRT's modules is there under the same name, with the same arguments and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tests.conftest import missing

MODULES = ("compiled_model", "hardware_accelerator", "tensor_buffer")


@pytest.fixture(params=MODULES)
def modules(request: pytest.FixtureRequest) -> tuple[ModuleType, ModuleType]:
    """One of tflgpu's modules, and LiteRT's of the same name."""
    if find_spec("ai_edge_litert") is None:
        missing("LiteRT")
    ours, theirs = (import_module(f"{package}.{request.param}") for package in ("tflgpu", "ai_edge_litert"))
    return ours, theirs


def classes(module: ModuleType) -> dict[str, type]:
    """LiteRT's public classes that a module has, those that it imports from others included."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__.startswith("ai_edge_litert") and not name.startswith("_")
    }


def methods(kind: type) -> Iterator[str]:
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, classmethod) else value
        if isinstance(function, FunctionType) and (not name.startswith("_") or name == "__init__"):
            yield name


def plain(value: Any) -> Any:
    """Members of enumerations go by their names: each package has its own."""
    return (type(value).__name__, value.name) if isinstance(value, Enum) else value


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, plain(p.default)) for p in inspect.signature(function).parameters.values()]


def test_public_names_are_litert_s(modules: tuple[ModuleType, ModuleType]) -> None:
    ours, theirs = modules
    assert set(ours.__all__) == classes(theirs).keys()
    for name, kind in classes(theirs).items():
        attributes = {attribute for attribute in dir(kind) if not attribute.startswith("_")}
        assert attributes <= set(dir(getattr(ours, name))), name


def test_arguments_are_litert_s(modules: tuple[ModuleType, ModuleType]) -> None:
    ours, theirs = modules
    for name, kind in classes(theirs).items():
        if issubclass(kind, Enum):
            continue
        for method in methods(kind):
            own, expected = (parameters(getattr(each, method)) for each in (getattr(ours, name), kind))
            assert own[: len(expected)] == expected, f"{name}.{method}"
            assert all(how == inspect.Parameter.KEYWORD_ONLY for _, how, _ in own[len(expected) :]), f"{name}.{method}"


def test_kinds_of_attributes_are_litert_s(modules: tuple[ModuleType, ModuleType]) -> None:
    ours, theirs = modules
    for name, kind in classes(theirs).items():
        for attribute, value in vars(kind).items():
            if isinstance(value, property | classmethod | staticmethod) and not attribute.startswith("_"):
                own = inspect.getattr_static(getattr(ours, name), attribute)
                assert isinstance(own, type(value)), f"{name}.{attribute}"


def test_fields_and_members_are_litert_s(modules: tuple[ModuleType, ModuleType]) -> None:
    ours, theirs = modules
    for name, kind in classes(theirs).items():
        own: Any = getattr(ours, name)
        assert is_dataclass(own) == is_dataclass(kind)
        if is_dataclass(kind):
            expected = [(f.name, f.init) for f in fields(kind)]
            assert [(f.name, f.init) for f in fields(own)] == expected, name
        if issubclass(kind, Enum):
            assert {n: m.value for n, m in own.__members__.items()} == {n: m.value for n, m in kind.__members__.items()}


def test_groups_of_options_have_litert_s_enumerations() -> None:
    if find_spec("ai_edge_litert") is None:
        missing("LiteRT")
    ours, theirs = (import_module(f"{package}.compiled_model") for package in ("tflgpu", "ai_edge_litert"))
    for group in ("QualcommOptions", "IntelOpenVinoOptions"):
        named = {n: v for n, v in vars(getattr(theirs, group)).items() if n.isupper()}
        assert named
        for name, kind in named.items():
            own = getattr(getattr(ours, group), name)
            assert {n: m.value for n, m in own.__members__.items()} == {n: m.value for n, m in kind.__members__.items()}
