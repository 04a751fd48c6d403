"""``tflgpu evaluate`` on sets of real images, judged by LiteRT's interpreter, numpy and pycocotools run by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.cli.command import as_json, succeed
from tests.cli.documented import check
from tests.evaluate.image_sets import annotated_set, labelled_set
from tests.support import litert
from tflgpu.inputs import InputReader
from tflgpu.model.metadata import labels_in_file
from tflgpu.model.tensor_info import TensorInfo

CLASSIFIER = "mobilenet_v1_0.25_224_quant.tflite"
FLOAT_CLASSIFIER = "mobilenet_v1_0.25_224_1_default_1.tflite"
DETECTOR = "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"

pytestmark = pytest.mark.full("real models on up to a hundred images; tests/evaluate has every part of it")

# An evaluation that gets a real signal while its file number N is under way.
PROGRAM = """
import os, signal, sys
from tflgpu.cli import app
from tflgpu.evaluate.task import Worker

last, call, files = int(sys.argv.pop(1)), Worker.__call__, []

def counted(self, file):
    files.append(file)
    if len(files) == last:
        os.kill(os.getpid(), signal.SIGINT)
    return call(self, file)

Worker.__call__ = counted
app()
"""


def test_a_hundred_images_give_ten_lines(shared: Path, tmp_path: Path) -> None:
    """The answers of LiteRT's own interpreter, counted in numpy, and the device's within 1% of them at Top-5."""
    images, labels = labelled_set(shared, tmp_path, 100)
    names = labels_in_file((shared / "models" / CLASSIFIER).read_bytes())
    (tmp_path / "names.txt").write_text("\n".join(names))
    model = shared / "models" / FLOAT_CLASSIFIER
    flags = ("--ground_truth_images_path", images, "--ground_truth_labels", labels)  # as TFLite's tool has them
    text = succeed("evaluate", "imagenet", model, *flags, "--model_output_labels", tmp_path / "names.txt")
    assert text.startswith("Num evaluation runs: 100\nPreprocessing latency: avg=")
    lines = re.findall(r"^Top-(\d+) Accuracy: ([\d.]+) \(LiteRT ([\d.]+)\)$", text, re.MULTILINE)
    assert [int(place) for place, _, _ in lines] == list(range(1, 11))
    data = model.read_bytes()
    reader = InputReader(data, [TensorInfo("image", (1, 224, 224, 3), "float32", None)], crop=0.875, antialias=False)
    hits = np.zeros(10)
    for image, label in zip(sorted(images.iterdir()), labels.read_text().splitlines(), strict=True):
        (scores,) = litert.run(data, *reader.read([image])).values()
        best = np.argsort(-scores[0], kind="stable")[:10]
        place = [names[index] for index in best].index(label) if label in {names[index] for index in best} else 10
        hits[place:] += 1
    assert [float(reference) for _, _, reference in lines] == (hits / 100).tolist()
    assert float(lines[4][1]) == pytest.approx(float(lines[4][2]), abs=0.0101)
    assert hits[0] >= 50, "the set shows what its labels say"


def test_sigint_and_again_gives_the_same_numbers(shared: Path, tmp_path: Path) -> None:
    images, labels = labelled_set(shared, tmp_path, 100)
    model = shared / "models" / CLASSIFIER
    flags = ("--images", images, "--ground-truth", labels)
    command = ("evaluate", "imagenet", model, *flags)
    state = tmp_path / "state"
    arguments = [*command, "--state", state]
    first = subprocess.run(
        [sys.executable, "-c", PROGRAM, "38", *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert first.returncode != 0
    assert first.stdout == ""
    assert f"stopped after 37 of 100 files; the same command goes on from there ({state})" in first.stderr
    kept = state.read_bytes()
    assert kept.count(b"\n") == 1 + 37
    resumed = as_json(*arguments)
    assert not state.exists()
    whole = as_json(*command)
    for key in ("topk_accuracies", "same_top1", "files", "model"):
        assert resumed[key] == whole[key]


def by_hand(annotations: Path, results: list[dict[str, Any]]) -> list[float]:
    """COCO's twelve numbers."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth = COCO(str(annotations))
    evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return [float(number) for number in evaluation.stats]


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_ten_images_are_as_by_hand(shared: Path, tmp_path: Path) -> None:
    images, annotations = annotated_set(shared, tmp_path, 10)
    model = shared / "models" / DETECTOR
    data, names = model.read_bytes(), labels_in_file(model.read_bytes())
    flags = ("--images", images, "--ground-truth", annotations)
    found = as_json("evaluate", "coco", model, *flags)
    precisions = {"average_precisions": found["average_precisions"]}
    check("evaluate coco", [precisions], opaque=("average_precisions.litert",))
    truth = json.loads(annotations.read_text())
    category = {c["name"]: c["id"] for c in truth["categories"]}
    results: dict[str, list[dict[str, Any]]] = {"device": [], "litert": []}
    with tflgpu.compile(model) as compiled:
        reader = InputReader(data, compiled.inputs, antialias=False)
        for image in truth["images"]:
            inputs = reader.read([images / image["file_name"]])
            answers = {"device": compiled.run(inputs), "litert": litert.run(data, *inputs)}
            for engine, arrays in answers.items():
                boxes, classes, scores, count = arrays.values()
                for box, index, score in list(zip(boxes[0], classes[0], scores[0], strict=True))[: int(count[0])]:
                    top, left, bottom, right = box.astype(float) * np.tile([image["height"], image["width"]], 2)
                    if names[int(index)] in category:
                        number = category[names[int(index)]]
                        place = {"image_id": image["id"], "bbox": [left, top, right - left, bottom - top]}
                        results[engine].append({**place, "category_id": number, "score": float(score)})
    for engine, each in results.items():
        numbers = found["average_precisions"][engine]
        assert numbers["coco_stats"] == by_hand(annotations, each)
        assert numbers["mean"] == numbers["coco_stats"][0] > 0.1
        assert [t["iou"] for t in numbers["thresholds"]] == [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
        assert numbers["thresholds"][0]["average_precision"] == pytest.approx(numbers["coco_stats"][1])
        assert np.mean([t["average_precision"] for t in numbers["thresholds"]]) == pytest.approx(numbers["mean"])
    text = succeed("evaluate", "coco", model, *flags, "--num-images", 2)
    assert "Num evaluation runs: 2\n" in text
    assert "\nAverage Precision [IOU Threshold=0.5]: " in text and "\nOverall mAP: " in text
