"""A camera loop: blur what is behind the person, frame by frame, as in a video call.

    python examples/vision/camera.py models/selfie_segmenter.tflite images/face.jpg --frames 30 --out portrait.png

Frames come as RGBA bytes, as cameras, browsers and screens give them. They stay bytes up to the device, in an array
that the device reads by itself. `simulated_camera` pans across a picture; put the loop of your own camera there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

import tflgpu

SIZE = 640, 480  # of the camera's frames


class PersonFinder:
    """Finds the person in a frame; made once, called for every frame."""

    def __init__(self, path: Path) -> None:
        (wanted,) = tflgpu.inspect(path).model.inputs
        # The device computes (byte - 0) / 255: the host converts nothing, and a quarter of the bytes cross to it.
        self.model = tflgpu.compile(
            path, tflgpu.Options(interface=tflgpu.Interface(uint8_inputs={wanted.name: (0, 255)}))
        )
        self.pixels = self.model.pinned_array(wanted.name)  # (1, height, width, 3) uint8, filled again for each frame
        self.size = wanted.shape[2], wanted.shape[1]

    def __call__(self, frame: NDArray[np.uint8]) -> NDArray[np.float32]:
        """RGBA (height, width, 4) -> probability of the person, (height, width) of the model."""
        small = Image.fromarray(frame).resize(self.size, Image.Resampling.BILINEAR)
        self.pixels[0] = np.asarray(small)[..., :3]
        (mask,) = self.model.run(self.pixels).values()
        return mask[0, ..., 0]


def simulated_camera(path: Path, frames: int) -> Iterator[NDArray[np.uint8]]:
    """RGBA frames (480, 640, 4) that pan across a picture from left to right."""
    width, height = SIZE
    with Image.open(path) as file:
        scene = ImageOps.fit(file.convert("RGBA"), (width * 5 // 4, height), Image.Resampling.BILINEAR)
    for number in range(frames):
        left = (scene.width - width) * number // max(frames - 1, 1)
        yield np.asarray(scene.crop((left, 0, left + width, height)))


def portrait(frame: NDArray[np.uint8], mask: NDArray[np.float32]) -> Image.Image:
    """The frame with its background blurred."""
    picture = Image.fromarray(frame)
    person = Image.fromarray((mask * 255).astype(np.uint8)).resize(picture.size, Image.Resampling.BICUBIC)
    return Image.composite(picture, picture.filter(ImageFilter.GaussianBlur(9)), person)


def main() -> None:
    parser = argparse.ArgumentParser(description="Blur what is behind a person, frame by frame.")
    parser.add_argument("model", type=Path)
    parser.add_argument("image", type=Path, help="what the simulated camera sees")
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("portrait.png"), help="where to save the last frame")
    arguments = parser.parse_args()

    find_person = PersonFinder(arguments.model)
    seconds = []
    for frame in simulated_camera(arguments.image, arguments.frames):
        start = perf_counter()
        mask = find_person(frame)
        seconds.append(perf_counter() - start)
    print(f"{len(seconds)} frames on {find_person.model.device.name}, {np.median(seconds) * 1000:.1f} ms each")
    print(f"the person takes {np.mean(mask):.0%} of the last frame")
    portrait(frame, mask).save(arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
