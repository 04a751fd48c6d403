"""Say whether a person is in an image, with a model that was read into memory and has bytes in and out."""

import sys

import numpy as np
from PIL import Image
from tflite_runtime import interpreter as tflite

PERSON = "person"


def quantize(details, values):
    scale, zero_point = details["quantization"]
    if scale == 0:
        return values.astype(details["dtype"])
    info = np.iinfo(details["dtype"])
    return np.clip(np.round(values / scale) + zero_point, info.min, info.max).astype(details["dtype"])


def dequantize(details, values):
    parameters = details["quantization_parameters"]
    if len(parameters["scales"]) == 0:
        return values
    return (values.astype(np.float32) - parameters["zero_points"][0]) * parameters["scales"][0]


def main(model_path, label_path, *image_paths):
    with open(model_path, "rb") as f:
        interpreter = tflite.Interpreter(model_content=f.read(), num_threads=2)
    with open(label_path) as f:
        labels = f.read().splitlines()

    input_details = interpreter.get_input_details()[0]
    output_details = interpreter.get_output_details()
    interpreter.allocate_tensors()

    for path in image_paths:
        height, width = input_details["shape"][1:3]
        pixels = np.asarray(Image.open(path).convert("RGB").resize((width, height), Image.BILINEAR), np.float32)
        interpreter.set_tensor(input_details["index"], quantize(input_details, (pixels - 127.5) / 127.5)[np.newaxis])
        interpreter.invoke()
        _, classes, scores, _ = (dequantize(d, interpreter.get_tensor(d["index"])) for d in output_details)
        found = [float(s) for c, s in zip(classes[0], scores[0]) if labels[int(c)] == PERSON]  # noqa: B905
        best = max(found, default=0.0)
        print(f"{path}: {'person' if best > 0.5 else 'no person'} ({best:.2f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
