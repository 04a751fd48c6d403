"""Batch prediction with Ray Data: the likeliest class of every picture in a folder, as a Parquet file.

    pip install ".[cpu,ray]"
    python examples/batch/label_pictures.py models/mobilenet_v1_0.25_224_1_default_1.tflite labels/imagenet_labels.txt \
        images --out classes --workers 2

Ray reads the pictures, shares them out over the workers and writes the result; `tflgpu.batch.Predictor` is a model that
Ray can call. With `--gpus` each worker has a GPU of its own, on any machine of the cluster that `RAY_ADDRESS` names.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
from numpy.typing import NDArray
from pyarrow import parquet

import tflgpu
from tflgpu.batch import Predictor

BATCH = 16


def predictions(model: Path, folder: Path, workers: int, gpus: bool) -> ray.data.Dataset:
    """A row for each picture: its path, and the probability of each class."""
    (wanted,) = tflgpu.inspect(model).model.inputs
    _, height, width, _ = wanted.shape
    pictures = ray.data.read_images(str(folder), size=(height, width), mode="RGB", include_paths=True)
    options = tflgpu.Options(
        shapes=tflgpu.Shapes(batch=BATCH), interface=tflgpu.Interface(uint8_inputs={wanted.name: (127.5, 127.5)})
    )
    return pictures.map_batches(
        Predictor,
        fn_constructor_args=(str(model.resolve()), options),  # every machine of a cluster has to see this file
        fn_constructor_kwargs={"columns": {wanted.name: "image"}},
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=0,  # those that Ray counts are for reading pictures; a worker waits for its device
        num_gpus=1 if gpus else 0,
    )


def best_class(batch: dict[str, NDArray[Any]], labels: list[str]) -> dict[str, NDArray[Any]]:
    """The label and probability of the likeliest class, in place of all probabilities."""
    paths = batch.pop("path")
    (probabilities,) = batch.values()
    best = probabilities.argmax(axis=1)
    return {"path": paths, "label": np.array(labels)[best], "probability": probabilities.max(axis=1)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Classify all pictures of a folder.")
    parser.add_argument("model", type=Path)
    parser.add_argument("labels", type=Path, help="text file with the name of one class a line")
    parser.add_argument("folder", type=Path, help="folder of pictures")
    parser.add_argument("--out", type=Path, default=Path("classes"), help="folder of Parquet files to write")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gpus", action="store_true", help="give each worker a GPU")
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} is there already")

    labels = arguments.labels.read_text().splitlines()
    scores = predictions(arguments.model, arguments.folder, arguments.workers, arguments.gpus)
    best = scores.map_batches(best_class, fn_kwargs={"labels": labels})
    best.write_parquet(str(arguments.out), min_rows_per_file=10_000)
    for row in parquet.read_table(arguments.out).sort_by("path").to_pylist():
        print(f"{Path(row['path']).name:24} {row['probability']:4.0%}  {row['label']}")


if __name__ == "__main__":
    main()
