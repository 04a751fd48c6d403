"""Classify an image, as TensorFlow Lite's label_image.py does."""

import argparse
import time

import numpy as np
import tflite_runtime.interpreter as tflite
from PIL import Image


def load_labels(filename):
    with open(filename) as f:
        return [line.strip() for line in f.readlines()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-i", "--image", required=True)
    parser.add_argument("-m", "--model_file", required=True)
    parser.add_argument("-l", "--label_file", required=True)
    parser.add_argument("--input_mean", default=127.5, type=float)
    parser.add_argument("--input_std", default=127.5, type=float)
    parser.add_argument("--num_threads", default=None, type=int)
    parser.add_argument("-e", "--ext_delegate", help="external_delegate_library path")
    parser.add_argument("-o", "--ext_delegate_options", help="'option1: value1; option2: value2'")
    args = parser.parse_args()

    ext_delegate = None
    ext_delegate_options = {}
    if args.ext_delegate_options is not None:
        for o in args.ext_delegate_options.split(";"):
            kv = o.split(":")
            if len(kv) == 2:
                ext_delegate_options[kv[0].strip()] = kv[1].strip()
    if args.ext_delegate is not None:
        ext_delegate = [tflite.load_delegate(args.ext_delegate, ext_delegate_options)]

    interpreter = tflite.Interpreter(
        model_path=args.model_file, experimental_delegates=ext_delegate, num_threads=args.num_threads
    )
    interpreter.allocate_tensors()

    input_details = interpreter.get_input_details()
    output_details = interpreter.get_output_details()

    floating_model = input_details[0]["dtype"] == np.float32

    height = input_details[0]["shape"][1]
    width = input_details[0]["shape"][2]
    img = Image.open(args.image).convert("RGB").resize((width, height))

    input_data = np.expand_dims(img, axis=0)
    if floating_model:
        input_data = (np.float32(input_data) - args.input_mean) / args.input_std

    interpreter.set_tensor(input_details[0]["index"], input_data)

    start_time = time.time()
    interpreter.invoke()
    stop_time = time.time()
    assert stop_time >= start_time

    output_data = interpreter.get_tensor(output_details[0]["index"])
    results = np.squeeze(output_data)

    top_k = results.argsort()[-5:][::-1]
    labels = load_labels(args.label_file)
    for i in top_k:
        if floating_model:
            print(f"{float(results[i]):08.6f}: {labels[i]}")
        else:
            print(f"{float(results[i] / 255.0):08.6f}: {labels[i]}")
