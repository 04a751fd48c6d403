"""Classify pictures in batches; the last one is smaller, so that the input is resized twice."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from PIL import Image


def main(model_path, batch_size, *paths):
    model = CompiledModel.from_file(model_path)
    key = model.get_signature_by_index(0)["key"]
    (name,) = model.get_input_tensor_details(key)
    pixels = [np.asarray(Image.open(path).convert("RGB").resize((32, 32)), np.float32) for path in paths]
    for start in range(0, len(pixels), int(batch_size)):
        batch = np.stack(pixels[start : start + int(batch_size)])
        model.resize_input_tensor_by_name(key, name, batch.shape)
        print("shapes:", *(details["shape"] for details in model.get_output_tensor_details(key).values()))
        print("bytes:", model.get_input_buffer_requirements(0)["buffer_size"])
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        inputs[0].write(batch)
        model.run_by_index(0, inputs, outputs)
        shape = outputs[0].get_tensor_details()["shape"]
        for row in outputs[0].read(int(np.prod(shape)), np.float32).reshape(shape):
            print(f"class {row.argmax()}: {row.max():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
