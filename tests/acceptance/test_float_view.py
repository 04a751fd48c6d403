"""Quantized models without rounding: the labels, boxes, masks and joints that they find with it on real images.

What quantization clamps has to stay: many converters leave a RELU6 out where the integers' range is that of the RELU6.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import tflgpu
from tests.acceptance.pictures import IMAGES, overlap
from tests.quick import RUNTIMES
from tflgpu.compiler import inspect_model
from tflgpu.options import Interface, Numerics, Options, Quantized
from tflgpu.runtime.opencl.devices import choose

Array = NDArray[np.generic]
Floats = NDArray[np.float32]

CLASSIFIERS = ("mobilenet_v1_0.25_224_quant", "tf2_mobilenet_v2_1.0_224_ptq", "pretrainedResnet_quant")
DETECTOR = "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29"
SEGMENTER = "deeplabv3_mnv2_pascal_quant"
POSENET = "posenet_mobilenet_v1_100_257x257_multi_kpt_stripped_integer_quant"
MOVENET = "movenet_single_pose_lightning_ptq"
DIGITS = "keras_lstm_mnist_ptq"
QUICK = (CLASSIFIERS[2], DIGITS)
MODELS = (*CLASSIFIERS, POSENET, DIGITS, DETECTOR, SEGMENTER, MOVENET)


@cache
def compiled(
    name: str, shared: Path, quantized: Quantized, outputs: tuple[str, ...] | None = None
) -> tflgpu.CompiledModel:
    options = Options(
        precision="fp32",
        device=RUNTIMES[0],
        numerics=Numerics(quantized=quantized),
        interface=Interface(outputs=outputs),
    )
    return tflgpu.compile(shared / "models" / f"{name}.tflite", options)


def answers(
    name: str, shared: Path, image: str, outputs: tuple[str, ...] | None = None
) -> tuple[list[Array], list[Array]]:
    """The outputs without rounding, and with it."""
    (info,) = compiled(name, shared, "float", outputs).inputs
    with Image.open(shared / "images" / image) as file:
        mode, size = ("L", info.shape[1:]) if len(info.shape) == 3 else ("RGB", info.shape[1:3])
        pixels = np.asarray(file.convert(mode).resize(size[::-1], Image.Resampling.BILINEAR))[None]
    x = (pixels.astype(np.int16) - 128 * (info.dtype == "int8")).astype(info.dtype)
    got, expected = (list(compiled(name, shared, way, outputs).run(x).values()) for way in ("float", "fake_quantize"))
    return got, expected


@pytest.mark.quick(when=lambda name, image: name == CLASSIFIERS[2])
@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_name_the_same_label(name: str, image: str, shared: Path) -> None:
    (got,), (expected,) = answers(name, shared, image)
    assert got.argmax() == expected.argmax()


def test_a_digit_is_read(shared: Path) -> None:
    (got,), (expected,) = answers(DIGITS, shared, "mnist_nine.png")
    assert got.argmax() == expected.argmax() == 9


@pytest.mark.full(why="half a minute")
@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_a_detector_finds_the_same_boxes(shared: Path) -> None:
    """Every box that one of the two is fairly sure of has its like in the other: same class, IoU above 0.9."""
    sure_of = 0
    for image in IMAGES:
        for pair in (answers(DETECTOR, shared, image), answers(DETECTOR, shared, image)[::-1]):
            (boxes, labels, _), (others, other_labels, scores) = ([np.asarray(t)[0] for t in side[:3]] for side in pair)
            for box, label in zip(others[scores >= 0.55], other_labels[scores >= 0.55], strict=True):
                sure_of += 1
                assert any(overlap(box, other) > 0.9 for other in boxes[labels == label]), (image, box, label)
    assert sure_of >= 6, "the images should show something"


@pytest.mark.full(why="half a minute")
def test_segmentation_masks_agree(shared: Path) -> None:
    """Where rounding makes classes equal, ARG_MAX takes the first; any of them is right there.

    Such ties are 3 in 4 of the differences on the image of 128 pixels, which the model sees four times enlarged.
    """
    wanted = ("ResizeBilinear_2", "ArgMax")
    for image in (*IMAGES, "bird_segmentation.png"):
        (_, got), (logits, expected) = answers(SEGMENTER, shared, image, wanted)
        assert len(np.unique(expected)) > 1, "the image should show more than background"
        same = got == expected
        tied = np.take_along_axis(logits, got[..., None], -1)[..., 0] == logits.max(-1)
        assert np.mean(same | tied) >= 0.99
        assert np.mean(same) >= 0.99 or image == "dog_segmentation.png"


@pytest.mark.full("a large model")
def test_joints_of_posenet_agree(shared: Path) -> None:
    """The cell of a joint is as likely with rounding, up to 3 quanta, and there the joint is at most 3 pixels away.

    The file clamps its input to 0..255, although the network was trained for -1..1: it is sure of no joint anywhere.
    """
    for image in IMAGES:
        sides = answers(POSENET, shared, image)
        (heat, places), (wanted_heat, wanted_places) = (heat_and_places(side) for side in sides)
        cell = heat.argmax(0, keepdims=True)
        found = np.take_along_axis(wanted_heat, cell, 0)
        assert (wanted_heat.max(0) - found).max() <= 3 * 19.2 / 255
        distances = np.take_along_axis(places - wanted_places, cell[:, None], 0)
        assert np.abs(distances).max() <= 3


def heat_and_places(outputs: list[Array]) -> tuple[Floats, Floats]:
    """[81, 17] logits that a joint is in a cell of 32 x 32 pixels; [81, 2, 17] where it is from there, in pixels."""
    heat, offsets = (next(np.asarray(o, np.float32) for o in outputs if o.shape[-1] == n) for n in (17, 34))
    return heat.reshape(-1, 17), offsets.reshape(-1, 2, 17)


@pytest.mark.full(why="half a minute")
def test_joints_of_movenet_agree(shared: Path) -> None:
    """Joints that the rounding view is fairly sure of are in the same or the next cell of the 48 x 48 heat map."""
    sure_of = 0
    for image in IMAGES:
        (got,), (expected,) = answers(MOVENET, shared, image)
        joints, wanted = np.asarray(got)[0, 0], np.asarray(expected)[0, 0]
        sure = wanted[:, 2] > 0.35
        sure_of += int(sure.sum())
        assert np.abs(joints[sure, :2] - wanted[sure, :2]).max(initial=0) <= 1.5 / 48
    assert sure_of >= 3, "the images should show somebody"


@pytest.mark.quick(when=lambda name: name in QUICK)
@pytest.mark.parametrize("name", MODELS)
def test_clamps_take_no_kernels(name: str, shared: Path) -> None:
    """At most as many as rounding does: both fuse into the kernel before. Of the plans, which no driver compiles."""
    data, device = (shared / "models" / f"{name}.tflite").read_bytes(), choose(RUNTIMES[0])

    def kernels(way: Quantized) -> int:
        options = Options(precision="fp32", numerics=Numerics(quantized=way))
        return inspect_model(data, options, device.target(options)).kernels or 0

    assert 0 < kernels("float") <= kernels("fake_quantize")
