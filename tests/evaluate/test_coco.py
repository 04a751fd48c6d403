"""``tflgpu evaluate coco`` against pycocotools, run by hand on detections of the same engines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.command import fail
from tests.evaluate.image_sets import annotated_set
from tflgpu.evaluate.evaluations import Annotations

NETWORK = "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"


@pytest.fixture(scope="module")
def pictures(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    pytest.importorskip("pycocotools")
    return annotated_set(shared, tmp_path_factory.mktemp("ten"), 10)


def test_classes_become_categories_by_name(pictures: tuple[Path, Path]) -> None:
    truth = Annotations(pictures[1], pictures[0])
    assert truth.categories(["person", "bicycle", "cat"]) == {0: 1, 2: 17}
    assert truth.categories(["???", "person", "bicycle", "cat"]) == {0: 1, 2: 17}
    assert truth.categories([]) == {0: 1, 15: 16, 16: 17, 17: 18, 57: 58}
    with pytest.raises(ValueError, match=r"annotations\.json has none of the model's labels among its categories"):
        truth.categories(["one", "two"])


def test_a_detector_that_finds_nothing_has_no_precision(pictures: tuple[Path, Path]) -> None:
    truth = Annotations(pictures[1], pictures[0], 3)
    assert len(truth.files) == 3
    from tflgpu.evaluate.task import key_of

    rows = [{"file": key_of(file), "detections": {"device": []}} for file in truth.files]
    assert truth.precisions(rows, {0: 1})["device"].mean == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "does not hold COCO's annotations of objects: "),
        ("[]", "does not hold COCO's annotations of objects: "),
        ('{"images": []}', "has no list 'categories'"),
        ('{"images": [], "categories": [], "annotations": []}', "lists no image"),
        ('{"images": [{"id": 1, "width": 2}]}', "an element of 'images' has no 'file_name', 'height'"),
    ],
)
def test_damaged_annotations_are_named(content: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"bad\.json.*{message}"):
        Annotations(path, tmp_path)


def test_only_detectors_have_boxes(doubling: Path, pictures: tuple[Path, Path]) -> None:
    flags = ("--images", pictures[0], "--ground-truth", pictures[1])
    assert "does not end in TFLite_Detection_PostProcess" in fail("evaluate", "coco", doubling, *flags)


def test_without_pycocotools_what_brings_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    with pytest.raises(ValueError, match=r"pip install .pycocotools"):
        Annotations(tmp_path / "any.json", tmp_path)
