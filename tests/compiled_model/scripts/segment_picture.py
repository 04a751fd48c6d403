"""Say how much of a picture each class takes, with a model that was read into memory."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
from PIL import Image


def main(model_path, picture_path):
    with open(model_path, "rb") as file:
        model = CompiledModel.from_buffer(file.read(), hardware_accel=HardwareAccelerator.CPU)
    signature = model.get_signature_by_index(0)
    shape = model.get_output_tensor_details(signature["key"])[signature["outputs"][0]]["shape"]
    pixels = np.asarray(Image.open(picture_path).convert("RGB").resize((257, 257)), np.float32)
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    inputs[0].write(pixels / 127.5 - 1)
    model.run_by_index(0, inputs, outputs)
    classes = outputs[0].read(int(np.prod(shape)), np.float32).reshape(shape).argmax(-1)
    for number, count in enumerate(np.bincount(classes.ravel())):
        if count > 500:
            print(f"class {number}: {count / classes.size:.2f}")
    print(f"{outputs[0].get_tensor_details()['dtype']} {shape}")


if __name__ == "__main__":
    main(*sys.argv[1:])
