"""The examples of vision give LiteRT's answers, and draw them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from tests.examples.page import run_example
from tests.support import litert

Array = NDArray[Any]


def pixels(path: Path, size: tuple[int, int] | None = None) -> Array:
    with Image.open(path) as file:
        picture = file.convert("RGB")
    return np.asarray(picture.resize(size, Image.Resampling.BILINEAR) if size else picture)


def difference(picture: Path, original: Path) -> NDArray[np.bool_]:
    """Where a drawing differs from what it was drawn on."""
    return (pixels(picture) != pixels(original)).any(axis=-1)


@pytest.mark.full("a real model")
def test_classification(folder: Path) -> None:
    lines = run_example("vision/classify.py", folder)
    image = pixels(folder / "images" / "cat.png", (224, 224))[None]
    (scores,) = litert.run((folder / "models" / "tf2_mobilenet_v2_1.0_224_ptq.tflite").read_bytes(), image).values()
    labels = (folder / "labels" / "imagenet_labels.txt").read_text().splitlines()
    assert len(lines) == 5
    assert lines[0].endswith(f"%  {labels[scores.argmax()]}")
    assert float(lines[0].split("%")[0]) == pytest.approx(scores.max() / 256 * 100, abs=2)


@pytest.mark.full("a large model")
def test_detection(folder: Path) -> None:
    *lines, last = run_example("vision/detect.py", folder)
    model, original = (
        folder / "models" / "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite",
        folder / "images/face.jpg",
    )
    boxes, classes, scores, _ = litert.run(model.read_bytes(), pixels(original, (300, 300))[None]).values()
    sure = scores[0] >= 0.55 + 0.05  # what the two may differ by
    assert sure.sum() >= 3
    found = [re.fullmatch(r"(.+?) +(\d+)%  (\d+),(\d+) to (\d+),(\d+)", line) for line in lines]
    got = np.array([list(map(int, match.groups()[2:])) for match in found if match])
    assert len(got) == len(lines)
    height, width, _ = pixels(original).shape
    drawn = difference(folder / "detected.png", original)
    for (top, left, bottom, right), class_id in zip(boxes[0, sure].clip(0, 1), classes[0, sure], strict=True):
        expected = np.array([left * width, top * height, right * width, bottom * height])
        near = np.abs(got - expected).max(axis=1) <= 8
        assert near.any(), (expected, got)
        match = found[int(near.argmax())]
        assert match and match[1] == "person" and class_id == 0
        left, top, right, bottom = got[near.argmax()]
        assert (
            drawn[(top + bottom) // 2, left : left + 3].any() and drawn[bottom - 3 : bottom, (left + right) // 2].any()
        )
    assert last == "drawn in detected.png"


@pytest.mark.full("a large model")
def test_segmentation(folder: Path) -> None:
    *lines, last = run_example("vision/segment.py", folder)
    original = folder / "images" / "bird_segmentation.png"
    image = pixels(original, (257, 257))[None].astype(np.float32) / np.float32(127.5) - 1
    (scores,) = litert.run((folder / "models" / "deeplabv3_257_mv_gpu.tflite").read_bytes(), image).values()
    bird = float((scores[0].argmax(axis=-1) == 3).mean()) * 100
    assert len(lines) == 1 and lines[0].split()[0] == "bird"
    assert float(lines[0].split()[1].rstrip("%")) == pytest.approx(bird, abs=1)

    with Image.open(folder / "images" / "bird_segmentation_mask.png") as file:
        truth = np.asarray(file) == 3
    coloured = difference(folder / "segmented.png", original)
    coloured[:100, :150] = False  # the legend
    assert (coloured & truth).sum() / (coloured | truth).sum() > 0.8
    assert last == "drawn in segmented.png"


@pytest.mark.full("a large model")
def test_pose(folder: Path) -> None:
    *lines, last = run_example("vision/pose.py", folder)
    original = folder / "images" / "grace_hopper.png"
    with Image.open(original) as file:
        square = np.asarray(ImageOps.pad(file.convert("RGB"), (192, 192), Image.Resampling.BILINEAR))[None]
    model = (folder / "models" / "movenet_single_pose_lightning_ptq.tflite").read_bytes()
    (joints,) = litert.run(model, square).values()
    side, (width, height) = 600, (512, 600)
    (y, x, _), printed = joints[0, 0, 0], dict(re.findall(r"^(.+?) +\d+%  at (.+)$", "\n".join(lines), re.MULTILINE))
    # The score of the right eye is 0.37 by LiteRT's reference kernels, and 0.70 by XNNPACK.
    assert {"nose", "left eye", "left shoulder", "right shoulder"} <= printed.keys()
    expected = x * side - (side - width) / 2, y * side - (side - height) / 2
    nose = list(map(int, printed["nose"].split(",")))
    assert nose == pytest.approx(expected, abs=1.5 / 48 * side)  # cells of the model's heat map
    drawn = difference(folder / "pose.png", original)
    assert drawn[nose[1], nose[0]] and 0.002 < drawn.mean() < 0.05
    assert last == "drawn in pose.png"


@pytest.mark.full("a large model")
def test_camera(folder: Path) -> None:
    timing, area, last = run_example("vision/camera.py", folder)
    assert re.fullmatch(r"30 frames on .+, [\d.]+ ms each", timing)
    with Image.open(folder / "images" / "face.jpg") as file:
        scene = ImageOps.fit(file.convert("RGBA"), (800, 480), Image.Resampling.BILINEAR)
    frame = scene.crop((160, 0, 800, 480))
    image = np.asarray(frame.resize((256, 256), Image.Resampling.BILINEAR))[None, ..., :3] / np.float32(255)
    (mask,) = litert.run((folder / "models" / "selfie_segmenter.tflite").read_bytes(), image).values()
    covered = re.search(r"(\d+)%", area)
    assert covered and int(covered[1]) == pytest.approx(mask.mean() * 100, abs=1)

    person = np.asarray(Image.fromarray(mask[0, ..., 0]).resize(frame.size, Image.Resampling.BILINEAR))
    blurred = (pixels(folder / "portrait.png") != np.asarray(frame.convert("RGB"))).any(axis=-1)
    assert blurred[person > 0.999].mean() < 0.05
    assert blurred[person < 0.1].mean() > 0.8
    assert last == "drawn in portrait.png"
