"""Classify an image with a quantized model, as the examples for Coral's Edge TPU do, which fall back to the CPU."""

import argparse
import collections
import operator

import numpy as np
import tflite_runtime.interpreter as tflite
from PIL import Image

EDGETPU_SHARED_LIB = "libedgetpu.so.1"

Class = collections.namedtuple("Class", ["id", "score"])


def make_interpreter(model_file):
    model_file, *device = model_file.split("@")
    try:
        delegates = [tflite.load_delegate(EDGETPU_SHARED_LIB, {"device": device[0]} if device else {})]
    except (ValueError, OSError):
        delegates = None
    return tflite.Interpreter(model_path=model_file, experimental_delegates=delegates)


def input_details(interpreter, key):
    return interpreter.get_input_details()[0][key]


def input_size(interpreter):
    _, height, width, _ = input_details(interpreter, "shape")
    return width, height


def input_tensor(interpreter):
    tensor_index = input_details(interpreter, "index")
    return interpreter.tensor(tensor_index)()[0]


def set_input(interpreter, data):
    input_tensor(interpreter)[:, :] = data


def output_tensor(interpreter):
    output_details = interpreter.get_output_details()[0]
    output_data = np.squeeze(interpreter.tensor(output_details["index"])())
    scale, zero_point = output_details["quantization"]
    return scale * (output_data.astype(np.int64) - zero_point)


def get_output(interpreter, top_k=1, score_threshold=0.0):
    scores = output_tensor(interpreter)
    classes = [Class(i, scores[i]) for i in np.argpartition(scores, -top_k)[-top_k:] if scores[i] >= score_threshold]
    return sorted(classes, key=operator.itemgetter(1), reverse=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-i", "--input", required=True)
    parser.add_argument("-l", "--labels", required=True)
    parser.add_argument("-k", "--top_k", type=int, default=1)
    parser.add_argument("-t", "--threshold", type=float, default=0.0)
    parser.add_argument("-c", "--count", type=int, default=5)
    args = parser.parse_args()

    with open(args.labels, encoding="utf-8") as f:
        labels = dict(enumerate(line.strip() for line in f))

    interpreter = make_interpreter(args.model)
    interpreter.allocate_tensors()
    if input_details(interpreter, "dtype") != np.uint8:
        raise ValueError("Only support uint8 input type.")

    image = Image.open(args.input).convert("RGB").resize(input_size(interpreter), Image.LANCZOS)
    set_input(interpreter, np.asarray(image))

    for _ in range(args.count):
        interpreter.invoke()
        classes = get_output(interpreter, args.top_k, args.threshold)

    print("-------RESULTS--------")
    for klass in classes:
        print(f"{labels.get(klass.id, klass.id)}: {klass.score:.5f}")


if __name__ == "__main__":
    main()
