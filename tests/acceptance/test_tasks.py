"""Quantized models by what they are for: the same labels, boxes, masks and joints as LiteRT finds on real images.

Integer kernels round otherwise than the float view does: single numbers differ by some quanta, answers must not.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import tflgpu
from tests.acceptance.pictures import IMAGES, overlap
from tests.acceptance.real_models import error
from tests.quick import RUNTIMES, on_first_runtime
from tests.support import litert
from tflgpu.options import Options

Array = NDArray[np.generic]

# Large models: up to a minute on the second runtime. The parameter of ``options`` is a precision.
pytestmark = pytest.mark.quick(when=lambda device_name, options: on_first_runtime(device_name) and options != "fp32")


def answers(name: str, shared: Path, options: Options) -> Iterator[tuple[list[Array], list[Array]]]:
    """The outputs of tflgpu and of LiteRT for each of the images."""
    data = (shared / "models" / f"{name}.tflite").read_bytes()
    model = tflgpu.compile(data, options)
    (info,) = model.inputs
    _, height, width, _ = info.shape
    for image in IMAGES:
        with Image.open(shared / "images" / image) as file:
            rgb = np.asarray(file.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))[None]
        x = {"uint8": rgb, "int8": (rgb.astype(np.int16) - 128).astype(np.int8)}.get(info.dtype)
        given = (rgb / np.float32(127.5) - 1).astype(np.float32) if x is None else x
        yield list(model.run(given).values()), list(litert.run(data, given).values())


@pytest.fixture(params=["fp32", "fp16"])
def options(request: pytest.FixtureRequest, device_name: str) -> Options:
    return Options(precision=request.param, device=device_name)


@pytest.mark.quick(
    when=lambda name, device_name, options: (
        name.startswith("mobilenet_v1") and on_first_runtime(device_name) and options != "fp32"
    )
)
@pytest.mark.parametrize(
    "name", ["mobilenet_v1_0.25_224_quant", "tf2_mobilenet_v2_1.0_224_ptq", "pretrainedResnet_quant"]
)
def test_classifiers_name_the_same_label(name: str, shared: Path, options: Options) -> None:
    for (got,), (expected,) in answers(name, shared, options):
        assert got.argmax() == expected.argmax()


@pytest.mark.second_runtime(when=lambda: False)
@pytest.mark.full("a large model")
def test_a_detector_finds_the_same_boxes(shared: Path, options: Options) -> None:
    """Every box that LiteRT is fairly sure of has its like: same class, IoU above 0.9, score within 0.05."""
    name = "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29"
    for got, expected in answers(name, shared, options):
        for box, label, score in zip(*(np.asarray(t)[0] for t in expected[:3]), strict=True):
            if score >= 0.5:
                boxes, labels, scores = (np.asarray(t)[0] for t in got[:3])
                near = (labels == label) & (np.abs(scores - score) <= 0.05)
                assert any(overlap(box, other) > 0.9 for other in boxes[near]), (box, label, score)


@pytest.mark.second_runtime(when=lambda: False)
@pytest.mark.full("a large model")
def test_segmentation_masks_agree(shared: Path, device_name: str) -> None:
    options = Options(precision="fp32", device=device_name)
    for (got,), (expected,) in answers("deeplabv3_mnv2_pascal_quant", shared, options):
        assert len(np.unique(expected)) > 1, "the image should show more than background"
        assert np.mean(got == expected) >= 0.99


@pytest.mark.second_runtime(when=lambda: False)
@pytest.mark.full("a large model")
def test_a_pose_has_the_same_joints(shared: Path, device_name: str) -> None:
    """Joints that LiteRT is sure of are at most one and a half cells of the 48 x 48 heat map away."""
    options = Options(precision="fp32", device=device_name)
    sure_of = 0
    for (got,), (expected,) in answers("movenet_single_pose_lightning_ptq", shared, options):
        joints, wanted = np.asarray(got)[0, 0], np.asarray(expected)[0, 0]
        sure = wanted[:, 2] > 0.4
        sure_of += int(sure.sum())
        assert np.abs(joints[sure, :2] - wanted[sure, :2]).max(initial=0) <= 1.5 / 48
    assert sure_of >= 3, "the images should show somebody"


def test_a_digit_is_read(shared: Path, options: Options) -> None:
    """A quantized LSTM over the rows of an image."""
    model = tflgpu.compile(shared / "models" / "keras_lstm_mnist_ptq.tflite", options)
    with Image.open(shared / "images" / "mnist_nine.png") as file:
        image = np.asarray(file.convert("L").resize((28, 28)))[None]
    (scores,) = model.run(image).values()
    assert scores.argmax() == 9


@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model"])
def test_small_models_are_within_two_quanta(name: str, shared: Path, device_name: str) -> None:
    data = (shared / "models" / f"{name}.tflite").read_bytes()
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name))
    x = np.random.default_rng(0).integers(-128, 128, model.inputs[0].shape).astype(np.int8)
    (got,), (expected,) = model.run(x).values(), litert.run(data, x).values()
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 2


@pytest.mark.quick(
    when=lambda name, device_name: name in ("selfie_segmenter", "trained_lstm") and on_first_runtime(device_name)
)
@pytest.mark.parametrize(
    "name",
    [
        "hair_segmentation",
        "selfie_segmenter",
        "yolox_nano_float16_quantize",
        "torchaudio_conformer",
        "trained_lstm",
    ],
)
def test_float_models_are_right(name: str, shared: Path, device_name: str) -> None:
    data = (shared / "models" / f"{name}.tflite").read_bytes()
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name))
    rng = np.random.default_rng(0)
    inputs = [
        np.ones(i.shape, bool) if i.dtype == "bool" else rng.uniform(-1, 1, i.shape).astype(i.dtype)
        for i in model.inputs
    ]
    errors = list(map(error, model.run(inputs).values(), litert.run(data, *inputs).values()))
    assert max(errors) <= 1e-4, errors


def typical_error(got: Array, expected: Array) -> float:
    """The root of the mean squared difference as a part of the expected values' range."""
    difference = got.astype(np.float64) - expected.astype(np.float64)
    return float(np.sqrt(np.mean(difference**2)) / np.ptp(expected))


@pytest.mark.full("the quick suite has models of each kind in one precision")
@pytest.mark.parametrize(
    "name", ["face_detection_full_range_sparse", "style_transfer_f16_384", "torchaudio_conformer", "trained_lstm"]
)
def test_float_models_in_half_precision(name: str, shared: Path) -> None:
    data = (shared / "models" / f"{name}.tflite").read_bytes()
    model = tflgpu.compile(data, Options(precision="fp16", device=RUNTIMES[0]))
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, i.shape).astype(i.dtype) for i in model.inputs]
    errors = list(map(error, model.run(inputs).values(), litert.run(data, *inputs).values()))
    assert max(errors) <= 2e-2, errors


@pytest.mark.full("large models; the quick suite has them in fp32")
@pytest.mark.parametrize(
    ("name", "worst"),
    [("hair_segmentation", 6e-2), ("selfie_segmenter", 7e-2), ("yolox_nano_float16_quantize", 6e-2)],
)
def test_dense_outputs_in_half_precision(name: str, worst: float, shared: Path) -> None:
    """Among the hundred thousands of values of a mask or of boxes, a few amplify half's rounding to more than 2e-2."""
    data = (shared / "models" / f"{name}.tflite").read_bytes()
    model = tflgpu.compile(data, Options(precision="fp16", device=RUNTIMES[0]))
    (info,) = model.inputs
    with Image.open(shared / "images" / "cat.png") as file:
        rgb = np.asarray(file.convert("RGB").resize((416, 416) if "yolox" in name else info.shape[2:0:-1]), np.float32)
    if "yolox" in name:  # planes of blue, green and red, 0 to 255
        x = np.ascontiguousarray(rgb[None, ..., ::-1].transpose(0, 3, 1, 2))
    else:  # 0 to 1; a fourth channel is the last mask
        x = np.zeros(info.shape, np.float32)
        x[0, ..., :3] = rgb / 255
    (got,), (expected,) = model.run(x).values(), litert.run(data, x).values()
    assert typical_error(got, expected) <= 3e-3
    assert error(got, expected) <= worst


def test_nearly_every_model_runs_wholly_on_the_device(shared: Path) -> None:
    with (shared / "models" / "MANIFEST.csv").open() as file:
        names = [Path(row["file"]).stem for row in csv.DictReader(file) if "/" not in row["file"]]
    assert len(names) == 30
    for name in names:
        report = tflgpu.inspect(shared / "models" / f"{name}.tflite")
        assert not report.reasons
