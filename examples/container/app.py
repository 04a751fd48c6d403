"""The program of the container: a classifier that starts from the image's bundle, without compiling anything.

    docker run --rm --interactive classifier < images/cat.png

`ship.sh` makes the image. Exit code 1 and one line on stderr if the device or its driver is not the bundle's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image

import tflgpu

FOLDER = Path(__file__).parent  # has the model, its labels and the bundle


def start() -> tflgpu.CompiledModel:
    options = tflgpu.Options(
        cache="require",  # rather fail at once than compile at each start; see README.md for the other choice
        cache_files=tflgpu.CacheFiles(
            path=[FOLDER / "models.bundle"],
            bundle_digest=os.environ["BUNDLE_DIGEST"],  # a bundle is a program: run the one that was built, no other
        ),
    )
    return tflgpu.compile(FOLDER / "model.tflite", options)


def main() -> None:
    began = perf_counter()
    try:
        model = start()
    except (tflgpu.CacheMissError, tflgpu.BundleError) as error:
        sys.exit(str(error))
    seconds = perf_counter() - began

    _, height, width, _ = model.inputs[0].shape
    with Image.open(sys.stdin.buffer) as picture:
        pixels = np.asarray(picture.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))[None]
    if model.inputs[0].dtype == "float32":
        pixels = (pixels - np.float32(127.5)) / np.float32(127.5)
    (scores,) = model.run(pixels).values()
    label = (FOLDER / "labels.txt").read_text().splitlines()[scores.argmax()]
    print(f"{label} (ready in {seconds:.2f} s on {model.device.name})")


if __name__ == "__main__":
    main()
