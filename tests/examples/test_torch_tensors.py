"""Tensors of PyTorch. PyTorch is large, so that no extra has it: without it this is skipped."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.examples.page import run_example
from tests.support import litert


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: `pip install torch`")
def test_every_way_gives_the_same_answer(folder: Path) -> None:
    lines = run_example("sharing/torch_tensors.py", folder)
    with Image.open(folder / "images" / "cat.png") as file:
        image = np.asarray(file.convert("RGB").resize((224, 224)), np.float32)[None] / np.float32(127.5) - 1
    model = folder / "models" / "mobilenet_v1_0.25_224_1_default_1.tflite"
    (scores,) = litert.run(model.read_bytes(), image).values()
    found = [re.match(r"(\w+): class (\d+) with ([\d.]+)%, ", line) for line in lines]
    assert [match and match[1] for match in found] == ["tensor", "pinned", "shared"]
    for match in found:
        assert match and int(match[2]) == scores.argmax()
        assert float(match[3]) == pytest.approx(scores.max() * 100, abs=0.1)
