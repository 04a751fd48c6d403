"""A model over the KServe v2 protocol (Open Inference Protocol), by the server of the package `kserve`: HTTP and gRPC.

    pip install ".[cpu]" kserve
    python examples/serving/kserve_model.py examples/digits/digits.tflite --name digits
    curl http://127.0.0.1:8080/v2/models/digits

Clients of Triton and of KServe ask it as they ask any other server of the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from uuid import uuid4

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.errors import InvalidInput
from kserve.utils.numpy_codec import from_np_dtype

import tflgpu


class TfliteModel(Model):
    def __init__(self, name: str, path: Path, options: tflgpu.Options) -> None:
        super().__init__(name)
        self.path, self.options = path, options

    def load(self) -> bool:
        self.model = tflgpu.compile(self.path, self.options)
        self.ready = True
        return self.ready

    async def get_input_types(self) -> list[dict[str, object]]:
        return [describe(info) for info in self.model.inputs]

    async def get_output_types(self) -> list[dict[str, object]]:
        return [describe(info) for info in self.model.outputs]

    async def predict(self, payload: InferRequest, *_: object, **__: object) -> InferResponse:
        """The outputs of one request; one that does not fit is a 400, which says why."""
        try:
            given = {each.name: each.as_numpy() for each in payload.inputs}
            found = await asyncio.to_thread(self.model.run, given)  # requests follow each other on the device
        except (TypeError, ValueError) as error:
            raise InvalidInput(str(error)) from error
        outputs = []
        for name, array in found.items():
            output = InferOutput(name, list(array.shape), from_np_dtype(array.dtype))
            output.set_data_from_numpy(array, binary_data=False)
            outputs.append(output)
        return InferResponse(payload.id or str(uuid4()), self.name, outputs)  # clients need not give an id


def describe(info: tflgpu.TensorInfo) -> dict[str, object]:
    shape = [-1 if axis in info.free_axes else size for axis, size in enumerate(info.shape)]
    return {"name": info.name, "datatype": from_np_dtype(np.dtype(info.dtype)), "shape": shape}


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a model over the KServe v2 protocol.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--name", default="model", help="of the model, in the protocol")
    parser.add_argument("--batch", type=int, help="rows of a request, if not those of the file")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--grpc-port", type=int, default=8081)
    arguments = parser.parse_args()
    options = tflgpu.Options(shapes=tflgpu.Shapes(batch=arguments.batch))
    served = TfliteModel(arguments.name, arguments.model, options)
    served.load()
    ModelServer(http_port=arguments.port, grpc_port=arguments.grpc_port).start([served])


if __name__ == "__main__":
    main()
