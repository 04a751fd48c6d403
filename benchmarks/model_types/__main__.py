"""One network in every type of model, beside LiteRT's CPU kernels: rows of JSON, and a page of the documentation.

    python -m benchmarks.model_types [--shared FOLDER] [--models FOLDER] [--device D] [--precision fp32,fp16]
                                     [--threads N]

The shared folder, by default TFLGPU_SHARED or ../shared, has the published models and the photos. It takes about a
minute, writes benchmarks/results/model-types-cpu.json (or gpu, by the device's type) and docs/reference/model-types.md
anew, and needs the extra ``benchmark``; but not where the models are: with --models they are written to that folder,
and read from there if it exists.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks import choices
from benchmarks.model_types.family import family, read_models, write_models
from benchmarks.model_types.measured import read_photos, rows
from benchmarks.model_types.page import NAME, RESULTS, write_page
from benchmarks.publish import PACKAGES, publish
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.runtime.opencl.devices import choose

PHOTOS = (
    "bird.png",
    "bird_segmentation.png",
    "cat.png",
    "dog_segmentation.png",
    "face.jpg",
    "grace_hopper.png",
    "hot_dog.jpg",
)


def make_models(folder: Path, photos: Sequence[Path]) -> dict[str, bytes]:
    float_input = TensorInfo("input", (1, 224, 224, 3), "float32", None)
    return family(folder, read_photos(photos, b"", [float_input]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("TFLGPU_SHARED", "../shared")))
    parser.add_argument("--models", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", type=choices.precisions, default="fp32,fp16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    photos = [arguments.shared / "images" / name for name in PHOTOS]
    ready = arguments.models is not None and arguments.models.is_dir()
    models = read_models(arguments.models) if ready else make_models(arguments.shared / "models", photos)
    if arguments.models and not ready:
        write_models(models, arguments.models)
    found = rows(models, photos, arguments.device, arguments.precision, arguments.threads)
    device = choose(arguments.device)
    publish(
        found,
        device,
        RESULTS / f"{NAME}-{device.type}.json",
        packages=PACKAGES if ready else (*PACKAGES, "ai-edge-quantizer"),
        threads=arguments.threads,
        cores=os.cpu_count(),
    )
    write_page()


if __name__ == "__main__":
    main()
