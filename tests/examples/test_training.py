"""Training on the device, beside LiteRT's steps on the same batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.examples.page import EXAMPLES
from tflgpu.options import Execution, ExecutorChoice, Options

interpreter = pytest.importorskip("ai_edge_litert.interpreter")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(EXAMPLES / "training")
    import on_device

    yield on_device
    del sys.modules["on_device"]


@pytest.mark.quick(when=lambda executor: executor == "claiming")
@pytest.mark.parametrize("executor", ["claiming", "launch"])
def test_a_hundred_steps_are_those_of_litert(example: Any, executor: ExecutorChoice, device_name: str) -> None:
    data, (images, labels) = example.training_file(rows=90), example.digits()
    options = Options(precision="fp32", device=device_name, execution=Execution(executor=executor))
    model = tflgpu.compile(data, options)
    peer = interpreter.Interpreter(model_content=data)
    train = peer.get_signature_runner("train")
    reports = [each.report for each in (model, *model.signatures.values())]
    assert all(operator.device == "device" for report in reports for operator in report.operators)
    losses = []
    for step in range(100):
        given = example.batch(images[90:], labels[90:], step)
        losses.append((float(model.signatures["train"].run(given)["loss"]), float(train(**given)["loss"])))
    np.testing.assert_allclose(*np.transpose(losses), rtol=0, atol=1e-5)
    weights, expected = model.signatures["save"].run({}), peer.get_signature_runner("save")()
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=0, atol=1e-5)
    logits = model.run({"images": images[:90]})["logits"]
    assert np.mean(logits.argmax(-1) == labels[:90]) > 0.8
    np.testing.assert_allclose(logits, peer.get_signature_runner("infer")(images=images[:90])["logits"], atol=1e-4)
    model.reset_state()
    assert np.abs(model.run({"images": images[:90]})["logits"] - logits).max() > 0.5
    model.signatures["restore"].run(dict(expected))
    np.testing.assert_allclose(model.run({"images": images[:90]})["logits"], logits, atol=1e-4)


def test_training_goes_on_from_the_weights_of_a_file(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "weights.npz"
    monkeypatch.setattr(sys, "argv", ["on_device.py", "--steps", "100", "--weights", str(weights)])
    for _ in range(2):
        example.main()
    first, second = (line for line in capsys.readouterr().out.splitlines() if line.startswith("step 100"))
    assert float(second.split()[3].rstrip(",")) < float(first.split()[3].rstrip(","))
