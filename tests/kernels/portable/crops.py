"""Samples between pixels, and MediaPipe's crops around landmarks: what they compute, and small models of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flatbuffers import flexbuffers

from tests.kernels.networks import binary
from tests.ops import reference
from tests.ops.case import Net, Tensor
from tests.ops.reference import Array
from tests.support.row_cases import computed


def crop_matrix(
    landmarks: Array, ends: tuple[int, int], around: list[int], radians: float, scale: Array, size: Array
) -> Array:
    """MediaPipe's Landmarks2TransformMatrix: from (x, y, z, 1) in a crop of a size to an image with landmarks [n, 3].

    scale, size: of the crop, as (x, y).
    """

    def moved(by: Array) -> Array:
        matrix = np.eye(4)
        matrix[:2, 3] = by
        return matrix

    dx, dy = (landmarks[ends[1]] - landmarks[ends[0]])[:2]
    turn = radians - np.arctan2(dy, dx)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    turned = landmarks[around, :2] @ rotation.T
    box, middle = np.ptp(turned, axis=0), (turned.min(0) + turned.max(0)) / 2
    back, larger = np.eye(4), np.diag([*(scale * box / size), 1, 1])
    back[:2, :2] = rotation.T
    return moved(rotation.T @ middle) @ back @ larger @ moved(-size / 2)


def crop(image: Array, matrix: Array, height: int, width: int) -> Array:
    """MediaPipe's TransformTensorBilinear of an image [h, w, c]: zeros where a pixel's place is outside of it."""
    result = np.zeros((height, width, image.shape[2]))
    limits = np.array(image.shape[1::-1]) - 1
    for y, x in np.ndindex(height, width):
        place = matrix[:2] @ (x + 0.5, y + 0.5, 0, 1) - 0.5
        if (place >= 0).all() and (place <= limits).all():
            result[y, x] = reference.resampler(image[None], place[None, None])[0, 0]
    return result


def packed(options: Mapping[str, object]) -> bytes:
    """Options as these operators have them."""
    return bytes(flexbuffers.Dumps(dict(options)))


def resampled(net: Net) -> Tensor:
    """In rank 5, so that two batches of the output share an image; on the border, beyond it, and nowhere."""
    x = computed(net, (2, 4, 6, 5))
    warp = (net.rng.integers(-16, 64, (2, 2, 3, 4, 2)) / 8).astype(np.float32)
    warp[0, 0, 0, 0] = np.nan
    places = net.input(warp)
    return net.op("Resampler", [x, places], reference.resampler(x.value, places.value))


def around_landmarks(net: Net) -> Tensor:
    """Half of the crop is outside of the image. Its matrix leads landmarks to the image."""
    image, places = computed(net, (1, 9, 7, 5)), net.input(net.rng.random((1, 6, 3)).astype(np.float32))
    landmarks = binary(net, "MUL", places, places)
    names = ("left_rotation_idx", "right_rotation_idx", "output_width", "output_height", "scale_x", "scale_y")
    options = dict(zip(names, (0, 5, 4, 3, 9.0, 9.0), strict=True))
    around = {"subset_idxs": [1, 2, 4], "target_rotation_radians": 0.3}
    scale, size = np.array([9.0, 9.0]), np.array([4, 3])
    value = crop_matrix(landmarks.value[0], (0, 5), around["subset_idxs"], 0.3, scale, size)
    packed = bytes(flexbuffers.Dumps(options | around))
    matrix = net.op("Landmarks2TransformMatrix", [landmarks], value[None], version=2, custom_options=packed)
    moved = landmarks.value.copy()
    moved[..., :2] = landmarks.value[..., :2] @ value[:2, :2].T + value[:2, 3]
    net.output(net.op("TransformLandmarks", [landmarks, matrix], moved, version=2))
    cropped = crop(image.value[0], value, 3, 4)[None]
    return net.op("TransformTensorBilinear", [image, matrix], cropped, version=2, custom_options=packed)
