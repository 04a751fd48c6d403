"""Options by the names that they had before there were groups: a DeprecationWarning, and the same meaning."""

from __future__ import annotations

import copy
import inspect
import warnings
from dataclasses import replace
from typing import Any

import pytest

import tflgpu
from tflgpu.checking.option_declarations import flat_names
from tflgpu.interpreter import load_delegate
from tflgpu.options import Options, options_of

VALUES: dict[str, Any] = {
    "batch": 4,
    "input_shapes": {"x": (1, 2)},
    "signature": "serve",
    "outputs": ("y", 3),
    "uint8_inputs": {"x": (0.0, 255.0)},
    "bound": {"y": "x"},
    "tolerance": 0.01,
    "quantized": "float",
    "checks": True,
    "half_check": "off",
    "executor": "launch",
    "tuning": "fast",
    "cost_model": "measured",
    "kernels": "gpu",
    "integer_products": "off",
    "start": "now",
    "cpu_ops": ("SOFTMAX", range(60, 66)),
    "cpu_timeout": None,
    "cache_dir": "my-cache",
    "cache_limit": 5,
    "model_token": 7,
    "bundle_key": "a" * 64,
    "bundle_digest": ("b" * 64,),
}

OLD = [name for name, place in flat_names(Options).items() if place.group and name != "calibration"]


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_means_the_same(name: str) -> None:
    path = flat_names(Options)[name].path
    group, _, field = path.partition(".")
    with pytest.warns(
        DeprecationWarning, match=rf"^Options\({name}=...\) is now Options\({group}=\w+\({field}=...\)\)"
    ):
        given = Options(**{name: VALUES[name]})
    assert given == options_of({name: VALUES[name]})
    with pytest.warns(DeprecationWarning, match=f"^Options.{name} is now Options.{path};"):
        assert getattr(given, name) == VALUES[name]
    with pytest.warns(DeprecationWarning, match=rf"is now replace\(options, {group}=replace\(options.{group}, "):
        assert replace(Options(), **{name: VALUES[name]}) == given


def test_all_old_names_at_once() -> None:
    with pytest.warns(DeprecationWarning) as given:
        assert Options(precision="auto", **VALUES) == options_of(VALUES)
    assert len(given) == 1
    assert "shapes=Shapes(batch=..., inputs=...), interface=Interface(signature=..., " in str(given[0].message)


def test_a_warning_points_at_the_callers_line() -> None:
    uses = {
        "Options": lambda: Options(batch=4),  # type: ignore[call-arg]
        "replace": lambda: replace(Options(), batch=4),  # type: ignore[call-arg]
        "reading": lambda: Options().batch,  # type: ignore[attr-defined]
    }
    if hasattr(copy, "replace"):  # of Python 3.13
        uses["copy"] = lambda: copy.replace(Options(), batch=4)
    for use in uses.values():
        with pytest.warns(DeprecationWarning) as given:
            use()
        assert (given[0].filename, given[0].lineno) == (__file__, use.__code__.co_firstlineno)


def test_an_old_value_means_the_same() -> None:
    uses = {
        "group": lambda: Options(numerics=tflgpu.Numerics(quantized="simulate")),  # type: ignore[arg-type]
        "replace": lambda: Options(numerics=replace(tflgpu.Numerics(), quantized="simulate")),  # type: ignore[arg-type]
        "delegate": lambda: load_delegate("gpu", {"quantized": "simulate"}).options,
    }
    for use in uses.values():
        match = "^Options.numerics.quantized 'simulate' is now 'fake_quantize'; "
        with pytest.warns(DeprecationWarning, match=match) as given:
            assert use() == Options()
        assert (given[0].filename, given[0].lineno) == (__file__, use.__code__.co_firstlineno)


def test_replacing_keeps_the_rest_of_a_group() -> None:
    options = Options(cache_files=tflgpu.CacheFiles(path="my-cache", model_token=7))
    with pytest.warns(DeprecationWarning):
        changed = replace(options, model_token=8, cache="read")  # type: ignore[call-arg]
    assert changed == Options(cache="read", cache_files=tflgpu.CacheFiles(path="my-cache", model_token=8))


def test_an_old_name_beside_its_group_is_an_error() -> None:
    message = r"both shapes= and batch=, .* write Options\(shapes=Shapes\(batch=...\)\)"
    with pytest.raises(TypeError, match=message):
        Options(shapes=tflgpu.Shapes(inputs={"x": (1, 2)}), batch=4)  # type: ignore[call-arg]


def test_what_was_no_name_is_none() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'bach'"):
        Options(bach=4)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="'Options' object has no attribute 'bach'"):
        _ = Options().bach  # type: ignore[attr-defined]
    assert not hasattr(Options(), "path")


def test_the_signature_has_groups_only() -> None:
    assert list(inspect.signature(Options).parameters)[3:6] == ["fallback", "cache", "shapes"]
    assert OLD and not inspect.signature(Options).parameters.keys() & set(OLD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert copy.deepcopy(Options()) == Options()
