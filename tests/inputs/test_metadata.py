"""TFLite Metadata of real models, and damaged ones."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, invoke
from tests.conftest import missing
from tflgpu.errors import ModelError
from tflgpu.inputs import read_labels
from tflgpu.model.declared_metadata import ModelMetadata, Normalization
from tflgpu.model.metadata import labels_in_file, read_metadata

DETECTOR = "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29"


@pytest.fixture(scope="module")
def detector(shared: Path) -> bytes:
    return (shared / "models" / f"{DETECTOR}.tflite").read_bytes()


def test_normalization_is_read(shared: Path, detector: bytes) -> None:
    """tflite-support's own reader shows the same numbers."""
    (image,) = read_metadata(detector).inputs
    assert image.normalization == Normalization((127.5,), (127.5,))
    (image,) = read_metadata((shared / "models" / "selfie_segmenter.tflite").read_bytes()).inputs
    assert image.normalization == Normalization((0,), (255,))
    (clip,) = read_metadata((shared / "models" / "yamnet_audio_classifier_with_metadata.tflite").read_bytes()).inputs
    assert clip.normalization is None


def test_models_without_metadata_have_none() -> None:
    assert read_metadata(MODEL.read_bytes()) == ModelMetadata()
    assert labels_in_file(MODEL.read_bytes()) == []


def test_labels_are_unpacked(shared: Path, detector: bytes) -> None:
    found = labels_in_file(detector)
    assert found[:3] == ["person", "bicycle", "car"]
    quantized = (shared / "models" / "tf2_mobilenet_v2_1.0_224_ptq.tflite").read_bytes()
    assert labels_in_file(quantized) == read_labels(shared / "labels" / "imagenet_labels.txt")


def test_a_named_file_has_to_be_there(detector: bytes, tmp_path: Path) -> None:
    without = detector[: detector.rindex(b"PK\x03\x04")]
    with pytest.raises(ModelError, match=r"'labelmap\.txt', which the model's metadata name, cannot be unpacked"):
        labels_in_file(without)
    (tmp_path / "other.zip").write_bytes(without)
    with zipfile.ZipFile(tmp_path / "other.zip", "a") as archive:
        archive.writestr("other.txt", "person")
    with pytest.raises(ModelError, match=r"name a file 'labelmap\.txt', which is not packed"):
        labels_in_file((tmp_path / "other.zip").read_bytes())
    with zipfile.ZipFile(tmp_path / "other.zip", "a") as archive:
        archive.writestr("labelmap.txt", b"\xff\xfe")
    with pytest.raises(ModelError, match="no text in UTF-8"):
        labels_in_file((tmp_path / "other.zip").read_bytes())


def test_damage_is_a_model_error(detector: bytes) -> None:
    """Every byte of the metadata, made large: another answer, or ModelError."""
    start = detector.index(b"M001") - 4
    for place in range(start, start + 600):
        damaged = bytearray(detector)
        damaged[place] = 0xFF
        try:
            read_metadata(bytes(damaged))
        except ModelError as error:
            assert "the model's metadata are damaged" in str(error)
    with pytest.raises(ModelError, match=r"b'M0\.1', where b'M001' belongs"):
        read_metadata(detector[: start + 6] + b"." + detector[start + 7 :])


@pytest.mark.device
def test_run_names_classes_by_labels_in_file(shared: Path, tmp_path: Path) -> None:
    """A model whose packed files were lost runs nevertheless."""
    if not tflgpu.devices():
        missing("an OpenCL device")
    model, image = shared / "models" / "mobilenet_v1_0.25_224_quant.tflite", shared / "images" / "bird.png"
    assert as_json("run", model, image)["outputs"][0]["top"][0]["label"] == "chickadee"
    data = model.read_bytes()
    (tmp_path / "stripped.tflite").write_bytes(data[: data.rindex(b"PK\x03\x04")])
    result = invoke("run", tmp_path / "stripped.tflite", image, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["outputs"][0]["top"][0]["label"] is None
    assert f"{tmp_path}/stripped.tflite: 'labels.txt', which the model's metadata name" in result.stderr
