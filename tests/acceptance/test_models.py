"""Real models on real images: the answers of LiteRT's CPU interpreter, in as many kernels as there should be."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.acceptance.real_models import MOBILENET, TOLERANCE, Floats, RealModel, error
from tests.quick import on_first_runtime
from tests.support import litert
from tflgpu.options import Execution, Interface, KernelFamily, Options

DEEPLAB = RealModel("deeplabv3_257_mv_gpu", "bird_segmentation.png", 56, (257, 257))
RESNET = RealModel("pretrainedResnet", "cat.png", 12, (32, 32), pixels=(0.0, 255.0))
FACE_DETECTION = RealModel("face_detection_short_range", "face.jpg", 46, (128, 128))
MODELS = (
    MOBILENET,
    DEEPLAB,
    RESNET,
    FACE_DETECTION,
    RealModel("face_landmark", "face.jpg", 49, (192, 192)),
    # The logits of its mask reach from -900 to 350: LiteRT's own kernels differ there as much from each other.
    RealModel("pose_landmark_lite", "grace_hopper.png", 93, (256, 256), amplifies=8.0),
)


SMALL = (MOBILENET, RESNET, FACE_DETECTION)

# The model and precision that the quick suite runs on both runtimes; larger models take up to a minute on the second
# one.
SECOND = (MOBILENET, "fp16")

pytestmark = pytest.mark.quick(when=on_first_runtime)


@cache
def reference(model: RealModel, shared: Path) -> dict[str, Floats]:
    return litert.run(model.path(shared).read_bytes(), model.input(shared))


@pytest.mark.quick(
    when=lambda model, precision, device_name: (
        (on_first_runtime(device_name) and precision == "fp32" and model in SMALL) or (model, precision) == SECOND
    )
)
@pytest.mark.second_runtime(when=lambda precision: precision == "fp16")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_answers_as_litert_does(model: RealModel, precision: str, device_name: str, shared: Path) -> None:
    compiled = tflgpu.compile(model.path(shared), Options(precision=precision, device=device_name))
    got, expected = compiled.run(model.input(shared)), reference(model, shared)
    assert got.keys() == expected.keys()
    errors = {name: error(got[name], expected[name]) for name in expected}
    assert max(errors.values()) <= TOLERANCE[precision] * model.amplifies, errors
    assert compiled.report.kernels <= model.kernels
    assert all(o.device == "device" and not o.reasons for o in compiled.report.operators)


@pytest.mark.full("it takes seconds, and the op table has the same kernels")
@pytest.mark.parametrize(
    ("model", "kernels"),
    [(MOBILENET, "gpu"), (RESNET, "gpu"), (FACE_DETECTION, "cpu")],
    ids=lambda value: getattr(value, "name", value),
)
def test_answers_of_half_arithmetic(
    model: RealModel, kernels: KernelFamily, half_device: tflgpu.Device, shared: Path
) -> None:
    options = Options(precision="fp16_fast", device=half_device.index, execution=Execution(kernels=kernels))
    got, expected = tflgpu.compile(model.path(shared), options).run(model.input(shared)), reference(model, shared)
    errors = {name: error(got[name], expected[name]) for name in expected}
    assert max(errors.values()) <= TOLERANCE["fp16_fast"], errors


@pytest.mark.second_runtime(when=lambda precision: precision == "fp32")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model", [MOBILENET, RESNET], ids=lambda m: m.name)
def test_classifiers_name_the_same_label(model: RealModel, precision: str, device_name: str, shared: Path) -> None:
    compiled = tflgpu.compile(model.path(shared), Options(precision=precision, device=device_name))
    for image in ("cat.png", "bird.png", "dog_segmentation.png"):
        x = model.input(shared, image)
        (got,) = compiled.run(x).values()
        (expected,) = litert.run(model.path(shared).read_bytes(), x).values()
        assert got.argmax() == expected.argmax(), image


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_mobilenet_sees_what_is_there(precision: str, device_name: str, shared: Path) -> None:
    """Not what LiteRT says, but what is right."""
    labels = (shared / "labels" / "imagenet_labels.txt").read_text().splitlines()
    compiled = tflgpu.compile(MOBILENET.path(shared), Options(precision=precision, device=device_name))

    def label(image: str) -> str:
        (scores,) = compiled.run(MOBILENET.input(shared, image)).values()
        return labels[int(scores.argmax())]

    assert label("cat.png") == "Egyptian cat"
    assert label("bird.png") == "chickadee"
    assert label("dog_segmentation.png") == "Samoyed, Samoyede"


@pytest.mark.parametrize("image", ["bird_segmentation.png", "dog_segmentation.png"])
def test_deeplab_masks_agree(image: str, device_name: str, shared: Path) -> None:
    x = DEEPLAB.input(shared, image)
    compiled = tflgpu.compile(DEEPLAB.path(shared), Options(precision="fp32", device=device_name))
    (got,) = compiled.run(x).values()
    (expected,) = litert.run(DEEPLAB.path(shared).read_bytes(), x).values()
    masks = got.argmax(-1), expected.argmax(-1)
    assert len(np.unique(masks[1])) > 1, "the image should show more than background"
    assert np.mean(masks[0] == masks[1]) >= 0.995


def test_mobilenet_has_no_elementwise_kernel_left(device_name: str, shared: Path) -> None:
    compiled = tflgpu.compile(MOBILENET.path(shared), Options(device=device_name))
    assert "void map_" not in compiled.source


def test_any_intermediate_tensor_can_be_an_output(device_name: str, shared: Path) -> None:
    """BlazeFace keeps its activations apart from its convolutions, so that these names lie within what is fused."""
    data = FACE_DETECTION.path(shared).read_bytes()
    x = FACE_DETECTION.input(shared)
    operators = tflgpu.inspect(data).operators
    names = [o.outputs[0] for o in operators if o.code != "DEQUANTIZE"][::3]
    got = tflgpu.compile(data, Options(precision="fp32", device=device_name, interface=Interface(outputs=names))).run(x)
    expected = litert.run_all_tensors(data, x)
    assert list(got) == names
    errors = {name: error(got[name], expected[name]) for name in names}
    assert max(errors.values()) <= TOLERANCE["fp32"], errors


def test_input_and_evaluated_constant_can_be_outputs(device_name: str, shared: Path) -> None:
    data = FACE_DETECTION.path(shared).read_bytes()
    x = FACE_DETECTION.input(shared)
    expected = litert.run_all_tensors(data, x)
    constant = next(o.outputs[0] for o in tflgpu.inspect(data).operators if o.code == "DEQUANTIZE")
    (name,) = (i.name for i in tflgpu.compile(data, Options(device=device_name)).inputs)
    names = [name, constant]
    got = tflgpu.compile(data, Options(precision="fp32", device=device_name, interface=Interface(outputs=names))).run(x)
    np.testing.assert_array_equal(got[name], x)
    np.testing.assert_array_equal(got[constant], expected[constant])
