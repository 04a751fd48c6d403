"""Find objects in an image with a quantized SSD, as the examples for the Raspberry Pi do."""

import argparse
import collections
import importlib.util
import re

import numpy as np
from PIL import Image

# If tflite_runtime is installed, import the interpreter from there, else from TensorFlow.
if importlib.util.find_spec("tflite_runtime"):
    from tflite_runtime.interpreter import Interpreter
else:
    from tensorflow.lite.python.interpreter import Interpreter

Object = collections.namedtuple("Object", ["id", "score", "bbox"])


def load_labels(path):
    """Lines such as `0 person` or `person`."""
    with open(path, encoding="utf-8") as f:
        labels = {}
        for row_number, content in enumerate(f.readlines()):
            pair = re.split(r"[:\s]+", content.strip(), maxsplit=1)
            if len(pair) == 2 and pair[0].strip().isdigit():
                labels[int(pair[0])] = pair[1].strip()
            else:
                labels[row_number] = content.strip()
    return labels


def set_input_tensor(interpreter, image):
    tensor_index = interpreter.get_input_details()[0]["index"]
    input_tensor = interpreter.tensor(tensor_index)()[0]
    input_tensor[:, :] = image


def get_output_tensor(interpreter, index):
    output_details = interpreter.get_output_details()[index]
    return np.squeeze(interpreter.get_tensor(output_details["index"]))


def detect_objects(interpreter, image, threshold):
    set_input_tensor(interpreter, image)
    interpreter.invoke()

    boxes = get_output_tensor(interpreter, 0)
    classes = get_output_tensor(interpreter, 1)
    scores = get_output_tensor(interpreter, 2)
    count = int(get_output_tensor(interpreter, 3))

    return [Object(int(classes[i]), scores[i], boxes[i]) for i in range(count) if scores[i] >= threshold]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--labels", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--threshold", type=float, default=0.4)
    args = parser.parse_args()

    labels = load_labels(args.labels)
    interpreter = Interpreter(args.model)
    interpreter.allocate_tensors()
    print("outputs", [d["shape"].tolist() for d in interpreter.get_output_details()])
    _, input_height, input_width, _ = interpreter.get_input_details()[0]["shape"]

    image = Image.open(args.image).convert("RGB")
    results = detect_objects(interpreter, image.resize((input_width, input_height), Image.LANCZOS), args.threshold)
    for obj in results:
        ymin, xmin, ymax, xmax = obj.bbox
        xmin, xmax = int(xmin * image.width), int(xmax * image.width)
        ymin, ymax = int(ymin * image.height), int(ymax * image.height)
        print(f"{labels[obj.id]} {obj.score:.2f} at {xmin} {ymin} {xmax} {ymax}")


if __name__ == "__main__":
    main()
