"""Scripts in the manner of TensorFlow Lite's examples and those for Coral print the same with either interpreter."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import ai_edge_litert.interpreter
import numpy as np
import pytest

import tflgpu.interpreter
from tflgpu.model.writer import ModelBuilder

SCRIPTS = Path(__file__).parent / "scripts"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")

# Arguments of each script; words in capitals are folders and files below.
ARGUMENTS = {
    "label_image": "-m MODELS/mobilenet_v1_0.25_224_1_default_1.tflite -i IMAGES/grace_hopper.png "
    "-l LABELS/imagenet_labels.txt --num_threads 2",
    "coral_classify": "-m MODELS/mobilenet_v1_0.25_224_quant.tflite@usb:0 -i IMAGES/cat.png "
    "-l LABELS/imagenet_labels.txt -k 3 -t 0.05",
    "detect_objects": "--model MODELS/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite "
    "--labels LABELS/coco_labels.txt --image IMAGES/cat.png",
    "detect_person": "MODELS/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite LABELS/coco_labels.txt "
    "IMAGES/grace_hopper.png IMAGES/cat.png",
    "segment_image": "--model MODELS/deeplabv3_257_mv_gpu.tflite --image IMAGES/bird_segmentation.png "
    "--labels LABELS/pascal_voc_segmentation_labels.txt",
    "estimate_pose": "--model MODELS/posenet_mobilenet_v1_100_257x257_multi_kpt_stripped_integer_quant.tflite "
    "--image IMAGES/grace_hopper.png --threshold 0.08",
    "spot_keyword": "--model MODELS/hey_jarvis.tflite",
    "enhance_speech": "--model_1 MODELS/dtln_model_1.tflite --model_2 SECOND",
    "run_signature": "DIGITS 3",
    "classify_batches": "MODELS/pretrainedResnet.tflite 3 IMAGES/cat.png IMAGES/bird.png IMAGES/dog_segmentation.png "
    "IMAGES/hot_dog.jpg",
}


def second_model() -> bytes:
    """A block of samples and a state -> a block and the next state, which is its average so far."""
    builder = ModelBuilder()
    block, state = builder.input((1, 1, 512)), builder.input((1, 1, 512))
    half = builder.constant(np.full(1, 0.5, np.float32))
    both, following, result = (builder.tensor((1, 1, 512)) for _ in range(3))
    builder.op("ADD", [block, state], [both])
    builder.op("MUL", [both, half], [following])
    builder.op("TANH", [following], [result])
    return builder.finish([result, following])


def printed(
    script: str,
    arguments: str,
    library: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """The output of a script that finds ``library`` in place of TensorFlow Lite's runtime."""
    runtime = module_from_spec(ModuleSpec("tflite_runtime", None, is_package=True))
    monkeypatch.setattr(runtime, "interpreter", library, raising=False)
    monkeypatch.setitem(sys.modules, "tflite_runtime", runtime)
    monkeypatch.setitem(sys.modules, "tflite_runtime.interpreter", library)
    monkeypatch.setattr(sys, "argv", [script, *arguments.split()])
    capsys.readouterr()
    runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
    return capsys.readouterr().out


def expanded(arguments: str, places: Mapping[str, Path]) -> str:
    return re.sub("|".join(places), lambda found: str(places[found[0]]), arguments)


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # of scripts
@pytest.mark.quick(when=lambda script: script in ("run_signature", "enhance_speech", "spot_keyword"))
@pytest.mark.parametrize("script", ARGUMENTS)
def test_a_script_prints_what_it_prints_with_litert(
    script: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "second.tflite").write_bytes(second_model())
    folders = {name.upper(): shared / name for name in ("models", "images", "labels")}
    arguments = expanded(ARGUMENTS[script], folders | {"DIGITS": DIGITS, "SECOND": tmp_path / "second.tflite"})
    libraries = tflgpu.interpreter, ai_edge_litert.interpreter
    ours, theirs = (printed(script, arguments, library, monkeypatch, capsys) for library in libraries)
    assert len(theirs.splitlines()) > 1
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    numbers = [np.array([float(n) for n in NUMBER.findall(text)]) for text in (ours, theirs)]
    np.testing.assert_allclose(*numbers, rtol=0.02, atol=0.05)  # some steps of a score in 8 bits


def test_every_script_is_run() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == ARGUMENTS.keys()
    assert len(ARGUMENTS) >= 10
