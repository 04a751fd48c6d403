"""Classify a picture with a float model, as the first example of LiteRT's Python guide does."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from PIL import Image


def main(model_path, picture_path, label_path):
    model = CompiledModel.from_file(model_path)
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    _, height, width, _ = inputs[0].get_tensor_details()["shape"]
    pixels = np.asarray(Image.open(picture_path).convert("RGB").resize((width, height)), np.float32)
    inputs[0].write((pixels[None] - 127.5) / 127.5)
    model.run_by_index(0, inputs, outputs)
    scores = outputs[0].read(np.prod(outputs[0].get_tensor_details()["shape"]), np.float32)
    with open(label_path) as file:
        labels = file.read().splitlines()
    for number in np.argsort(-scores)[:3]:
        print(f"{labels[number]}: {scores[number]:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
