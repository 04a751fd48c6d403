"""The example for the KServe protocol: what it answers, without the server that brings requests."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import numpy as np
import pytest

from tests.examples.page import EXAMPLES
from tflgpu.options import Options

SHAPE = [1, 8, 8, 1]


@pytest.fixture(scope="module")
def served() -> Any:
    pytest.importorskip("kserve")  # which no extra brings
    spec = importlib.util.spec_from_file_location("kserve_model", EXAMPLES / "serving" / "kserve_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TfliteModel("digits", EXAMPLES / "digits" / "digits.tflite", Options())
    model.load()
    return model


def ask(served: Any, shape: list[int], numbers: int, name: str = "image", datatype: str = "FP32") -> Any:
    from kserve import InferInput, InferRequest

    given = InferInput(name, shape, datatype, data=[0] * numbers)
    return asyncio.run(served.predict(InferRequest("digits", [given])))


def test_a_request_needs_no_id(served: Any) -> None:
    response = ask(served, SHAPE, 64)
    assert isinstance(response.id, str)
    (output,) = response.outputs
    np.testing.assert_allclose(output.as_numpy().sum(), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (([1, 2], 2), "has shape"),
        ((SHAPE, 64, "picture"), "the model has"),
        ((SHAPE, 64, "image", "INT64"), "float32 was expected"),
        ((SHAPE, 3), "cannot reshape"),
    ],
)
def test_what_does_not_fit_is_the_fault_of_the_request(served: Any, request_: Any, reason: str) -> None:
    from kserve.errors import InvalidInput

    with pytest.raises(InvalidInput, match=reason):
        ask(served, *request_)
