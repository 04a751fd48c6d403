"""A web service that classifies pictures. Requests of the same few milliseconds run as one batch.

    pip install ".[cpu,examples]"
    python examples/serving/service.py models/mobilenet_v1_0.25_224_1_default_1.tflite labels/imagenet_labels.txt
    curl --data-binary @images/cat.png http://127.0.0.1:8000/classify

In a batch a picture costs a GPU a fraction of what it costs alone. The batching is in `micro_batching.py`;
http://127.0.0.1:8000/docs describes the service.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from micro_batching import MicroBatcher
from pictures import DECODERS, body_of, decode
from pydantic import BaseModel

import tflgpu


class Prediction(BaseModel):
    label: str
    probability: float


def create_app(model_path: Path, labels: list[str], batch: int = 16) -> FastAPI:
    (wanted,) = tflgpu.inspect(model_path).model.inputs
    # Pictures go to the device as bytes; it computes (byte - 127.5) / 127.5. The plan is for whole batches.
    options = tflgpu.Options(
        interface=tflgpu.Interface(uint8_inputs={wanted.name: (127.5, 127.5)}), shapes=tflgpu.Shapes(batch=batch)
    )
    batcher = MicroBatcher(tflgpu.compile(model_path, options))
    size = wanted.shape[2], wanted.shape[1]
    decoding = asyncio.Semaphore(DECODERS)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        serving = asyncio.create_task(batcher.serve())
        yield
        serving.cancel()

    app = FastAPI(title="Picture classification", lifespan=lifespan)

    @app.post("/classify")
    async def classify(request: Request) -> Prediction:
        """The likeliest class of the picture that is the body of the request."""
        encoded = await body_of(request)
        try:
            async with decoding:
                pixels = await asyncio.to_thread(decode, encoded, size)
        except Exception as error:  # Pillow raises anything for a damaged file
            raise HTTPException(415, "the body is no picture that can be read, or too large a one") from error
        probabilities = await batcher.run(pixels)
        best = int(probabilities.argmax())
        return Prediction(label=labels[best], probability=float(probabilities[best]))

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a classifier over HTTP.")
    parser.add_argument("model", type=Path)
    parser.add_argument("labels", type=Path, help="text file with the name of one class a line")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    app = create_app(arguments.model, arguments.labels.read_text().splitlines())
    uvicorn.run(app, port=arguments.port, limit_concurrency=256)  # more get a 503 instead of a long wait


if __name__ == "__main__":
    main()
