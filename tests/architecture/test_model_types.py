"""The page of model types: what its models are, and that it says what was measured."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from benchmarks import zoo
from benchmarks.model_types.family import FLOAT32, TRAINED, family, read_models, write_models
from benchmarks.model_types.page import NAME, PAGE, RESULTS, page

KINDS = {
    "float32": "float32",
    "float16": "float32 with float16 weights",
    "dynamic range": "float32 with int8 weights (dynamic range)",
    "int8": "integer int8",
    "int8 with float fallback": "integer int8, in part float32",
}
TRAINING = "quantization-aware training"


def test_the_page_is_made_of_the_measured_rows() -> None:
    results = {path.name: json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{NAME}-*.json"))}
    for found in results.values():
        measured = [(row["type"], row["precision"]) for row in found["rows"]]
        assert measured == list(product((*KINDS, TRAINING), ("fp32", "fp16")))
    assert PAGE.read_text() == page(results), "python -m benchmarks.model_types.page"


def test_models_are_of_every_type(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_quantizer")
    (tmp_path / FLOAT32).write_bytes(zoo.mobilenet_v1(0.25, size=32, classes=8))
    (tmp_path / TRAINED).write_bytes(b"another file")
    images = list(np.random.default_rng(0).uniform(-1, 1, (2, 1, 32, 32, 3)).astype(np.float32))
    models = family(tmp_path, images)
    write_models(models, tmp_path / "all")
    assert list(read_models(tmp_path / "all").items()) == list(models.items())
    assert models.pop(TRAINING) == b"another file"
    found = {kind: tflgpu.inspect(model) for kind, model in models.items()}
    assert {kind: report.model.kind for kind, report in found.items()} == KINDS
    ends = {kind: (r.model.inputs[0].dtype, r.model.outputs[0].dtype) for kind, r in found.items()}
    assert ends.pop("int8") == ("int8", "int8")
    assert set(ends.values()) == {("float32", "float32")}
