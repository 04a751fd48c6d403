"""Scripts in the manner of LiteRT's guide print the same with either package."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import missing

SCRIPTS = Path(__file__).parent / "scripts"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")

# Arguments of each script; words in capitals are folders and files below.
ARGUMENTS = {
    "classify_picture": "MODELS/mobilenet_v1_0.25_224_1_default_1.tflite IMAGES/grace_hopper.png "
    "LABELS/imagenet_labels.txt",
    "classify_bytes": "MODELS/mobilenet_v1_0.25_224_quant.tflite IMAGES/cat.png IMAGES/hot_dog.jpg",
    "segment_picture": "MODELS/deeplabv3_257_mv_gpu.tflite IMAGES/bird_segmentation.png",
    "enhance_sound": "MODELS/dtln_model_1.tflite 5",
    "generate_text": "LANGUAGE/decoder_float.tflite 4",
    "score_text": "MODELS/text_classification.tflite good bad excellent",
    "classify_batches": "MODELS/pretrainedResnet.tflite 2 IMAGES/cat.png IMAGES/bird.png IMAGES/hot_dog.jpg",
    "find_landmarks": "MODELS/face_landmark.tflite IMAGES/grace_hopper.png",
    "describe_models": "DIGITS MODELS/kws_ref_model.tflite MODELS/dtln_model_1.tflite",
    "hear_sounds": "MODELS/yamnet_audio_classifier_with_metadata.tflite LABELS/yamnet_521_labels.txt",
    "recover_from_faults": "DIGITS",
}
QUICK = ("describe_models", "enhance_sound", "recover_from_faults", "score_text")


def printed(
    script: str, package: str, arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """The output of a script that imports ``package`` where it says LiteRT's."""
    path = SCRIPTS / f"{script}.py"
    monkeypatch.setattr(sys, "argv", [script, *arguments.split()])
    capsys.readouterr()
    code = compile(path.read_text().replace("ai_edge_litert", package), str(path), "exec")
    exec(code, {"__name__": "__main__", "__file__": str(path)})
    return capsys.readouterr().out


def expanded(arguments: str, places: Mapping[str, Path]) -> str:
    return re.sub("|".join(places), lambda found: str(places[found[0]]), arguments)


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.quick(when=lambda script: script in QUICK)
@pytest.mark.parametrize("script", ARGUMENTS)
def test_a_script_prints_what_it_prints_with_litert(
    script: str, shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_spec("ai_edge_litert") is None:
        missing("LiteRT")
    folders = {name.upper(): shared / name for name in ("models", "images", "labels", "language")}
    arguments = expanded(ARGUMENTS[script], folders | {"DIGITS": DIGITS})
    ours, theirs = (
        printed(script, package, arguments, monkeypatch, capsys) for package in ("tflgpu", "ai_edge_litert")
    )
    assert len(theirs.splitlines()) > 1
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    numbers = [np.array([float(n) for n in NUMBER.findall(text)]) for text in (ours, theirs)]
    np.testing.assert_allclose(*numbers, rtol=0.02, atol=0.05)


def test_every_script_is_run() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == ARGUMENTS.keys()
    assert len(ARGUMENTS) >= 10
