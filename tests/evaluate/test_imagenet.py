"""``tflgpu evaluate imagenet``: what is counted, and that LiteRT counts the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command import as_json, fail, succeed
from tests.cli.documented import check
from tests.evaluate.image_sets import labelled_set
from tflgpu.evaluate.evaluations import LabelledImage, labelled_images, top_k_accuracies
from tflgpu.evaluate.task import key_of

NETWORK = "mobilenet_v1_0.25_224_quant.tflite"


@pytest.fixture(scope="module")
def pictures(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return labelled_set(shared, tmp_path_factory.mktemp("ten"), 10)


def test_what_comes_next_to_the_numbers(shared: Path, pictures: tuple[Path, Path], tmp_path: Path) -> None:
    images, labels = pictures
    (tmp_path / "deny.txt").write_text("1\n3\n")
    arguments = (shared / "models" / NETWORK, "--images", images, "--ground-truth", labels)
    few = as_json("evaluate", "imagenet", *arguments, "--num-images", 4, "--denylist", tmp_path / "deny.txt")
    assert few["files"] == 4
    assert few["topk_accuracies"].keys() == {"device", "litert"}
    assert few["device_seconds"]["min"] <= few["device_seconds"]["median"] <= few["device_seconds"]["p99"]
    alone = as_json("evaluate", "imagenet", *arguments, "--num-images", 2, "--no-litert")
    assert (alone["litert"], alone["litert_seconds"], alone["same_top1"]) == (None, None, None)
    assert alone["topk_accuracies"].keys() == {"device"}
    check("evaluate imagenet", [few, alone], opaque=("device", "device_seconds", "litert_seconds"))
    text = succeed("evaluate", "imagenet", *arguments, "--num-images", 2, "--no-litert")
    assert "LiteRT" not in text and len(re.findall(r"^Top-\d+ Accuracy: [\d.]+$", text, re.MULTILINE)) == 10


def test_a_label_may_have_several_classes(tmp_path: Path) -> None:
    """ImageNet's names are not unique: `crane` is a bird and a machine."""
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.touch()
    images = [LabelledImage(file, label) for file, label in zip(files, ("crane", "maillot", "fox"), strict=True)]
    labels = ["crane", "fox", "maillot", "crane"]
    rows = [{"file": key_of(file), "best": {"device": [1, 3, 0, 2], "litert": [3, 1, 2, 0]}} for file in files]
    found = top_k_accuracies(rows[::-1], images, labels)
    assert found["device"] == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1])
    assert found["litert"] == pytest.approx([1 / 3, 2 / 3, 1, 1])


def test_files_have_to_fit_each_other(doubling: Path, pictures: tuple[Path, Path], tmp_path: Path) -> None:
    images, labels = pictures
    lines = labels.read_text().splitlines()
    (tmp_path / "short.txt").write_text("\n".join(lines[:7]))
    with pytest.raises(ValueError, match=r"short\.txt has 7 labels for the 10 images in .*images"):
        labelled_images(images, tmp_path / "short.txt", lines, None)
    with pytest.raises(ValueError, match=r"labels\.txt, line 2: the model has no label 'Egyptian cat'"):
        labelled_images(images, labels, ["chickadee"], None)
    for text in ("x", "0", "11"):
        (tmp_path / "deny.txt").write_text(f"1\n{text}\n")
        with pytest.raises(ValueError, match=rf"deny\.txt, line 2: '{text}' is no number of an image, 1 to 10"):
            labelled_images(images, labels, lines, tmp_path / "deny.txt")
    arguments = ("--images", images, "--ground-truth", labels)
    assert "no labels packed into it" in fail("evaluate", "imagenet", doubling, *arguments)
    arguments = (*arguments, "--labels", labels)
    (tmp_path / "deny.txt").write_text("\n".join(map(str, range(1, 11))))
    message = fail("evaluate", "imagenet", doubling, *arguments, "--denylist", tmp_path / "deny.txt")
    assert "no file is left to evaluate" in message
    message = fail("evaluate", "imagenet", doubling, *arguments)
    assert "there are 10 labels, but output 'y' has 4 elements" in message
