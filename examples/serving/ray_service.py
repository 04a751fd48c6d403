"""The web service of `service.py` on Ray Serve: replicas with a device each, as many as the load asks for.

    pip install ".[cpu,examples,serve]"
    python examples/serving/ray_service.py models/mobilenet_v1_0.25_224_1_default_1.tflite labels/imagenet_labels.txt
    curl --data-binary @images/cat.png http://127.0.0.1:8000/classify

Ray adds and ends replicas, asks each whether it is well, and starts another one in place of one that dies.
`tflgpu.batch.serving` is what a replica is made of, and joins requests to batches. On a cluster, `serve.run` of the
same application shares it out over all machines. With `RAY_SERVE_ENABLE_HA_PROXY=1` in the environment requests come by
HAProxy, which is faster than Ray's proxy in Python, and listens on all interfaces.
"""

# Without `from __future__ import annotations`: FastAPI reads the types of a method in the replica's process, where
# annotations that are text name nothing.

import argparse
import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, HTTPException, Request
from pictures import DECODERS, body_of, decode
from ray import serve
from service import Prediction

import tflgpu
from tflgpu.batch.serving import ask, deployment

app = FastAPI(title="Picture classification")


@serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
@serve.ingress(app)
class Classifier:
    """Decodes pictures, and asks the replicas of the model."""

    def __init__(self, model: Any, name: str, size: tuple[int, int], labels: list[str]) -> None:
        self.model, self.name, self.size, self.labels = model, name, size, labels
        self.decoding = asyncio.Semaphore(DECODERS)

    @app.post("/classify")
    async def classify(self, request: Request) -> Prediction:
        """The likeliest class of the picture that is the body of the request."""
        encoded = await body_of(request)
        try:
            async with self.decoding:
                pixels = await asyncio.to_thread(decode, encoded, self.size)
        except Exception as error:
            raise HTTPException(415, "the body is no picture that can be read, or too large a one") from error
        (probabilities,) = (await ask(self.model, {self.name: pixels})).values()
        best = int(probabilities.argmax())
        return Prediction(label=self.labels[best], probability=float(probabilities[best]))


def application(
    model_path: Path, labels: list[str], batch: int, replicas: tuple[int, int], gpus: float
) -> serve.Application:
    (wanted,) = tflgpu.inspect(model_path).model.inputs
    options = tflgpu.Options(
        interface=tflgpu.Interface(uint8_inputs={wanted.name: (127.5, 127.5)}), shapes=tflgpu.Shapes(batch=batch)
    )
    model = deployment(model_path, options, replicas=replicas, gpus=gpus)
    size = wanted.shape[2], wanted.shape[1]
    bound: serve.Application = Classifier.bind(model, wanted.name, size, labels)  # type: ignore[attr-defined]
    return bound


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a classifier over HTTP by Ray Serve.")
    parser.add_argument("model", type=Path)
    parser.add_argument("labels", type=Path, help="text file with the name of one class a line")
    parser.add_argument("--batch", type=int, default=16, help="the most pictures that are computed at once")
    parser.add_argument("--replicas", type=int, default=4, help="the most replicas")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of each replica; 0 on a machine without")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--try", dest="picture", type=Path, help="ask for this picture, and end")
    arguments = parser.parse_args()
    labels = arguments.labels.read_text().splitlines()
    served = application(arguments.model, labels, arguments.batch, (1, arguments.replicas), arguments.gpus)
    serve.start(http_options={"port": arguments.port})
    serve.run(served)
    if arguments.picture:
        content = arguments.picture.read_bytes()
        print(httpx.post(f"http://127.0.0.1:{arguments.port}/classify", content=content, timeout=60).text)
    with suppress(KeyboardInterrupt):
        while not arguments.picture:
            time.sleep(1)
    serve.shutdown()


if __name__ == "__main__":
    main()
