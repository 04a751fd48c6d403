"""Name what is in the parts of an image, as TensorFlow Lite's example of DeepLabV3 does."""

import argparse

import numpy as np
from PIL import Image

try:
    from tflite_runtime.interpreter import Interpreter
except ImportError:
    import tensorflow as tf

    Interpreter = tf.lite.Interpreter


def create_pascal_label_colormap():
    colormap = np.zeros((256, 3), dtype=int)
    indices = np.arange(256, dtype=int)
    for shift in reversed(range(8)):
        for channel in range(3):
            colormap[:, channel] |= ((indices >> channel) & 1) << shift
        indices >>= 3
    return colormap


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--labels", required=True)
    args = parser.parse_args()

    with open(args.labels) as f:
        label_names = f.read().splitlines()
    interpreter = Interpreter(model_path=args.model)
    input_details = interpreter.get_input_details()
    interpreter.allocate_tensors()

    input_size = input_details[0]["shape"][2], input_details[0]["shape"][1]
    image = Image.open(args.image).convert("RGB")
    old_size = image.size
    resized = np.asarray(image.resize(input_size, Image.LANCZOS)).astype(np.float32)
    resized = np.expand_dims(resized, 0) / 127.5 - 1

    interpreter.set_tensor(input_details[0]["index"], resized)
    interpreter.invoke()
    raw_prediction = interpreter.tensor(interpreter.get_output_details()[0]["index"])()

    seg_map = np.argmax(raw_prediction.squeeze(), axis=2).astype(np.int8)
    seg_map = np.asarray(Image.fromarray(seg_map.astype(np.uint8)).resize(old_size, Image.NEAREST))

    for label, count in zip(*np.unique(seg_map, return_counts=True)):  # noqa: B905
        color = create_pascal_label_colormap()[label]
        print(f"{label_names[label]} {color.tolist()}: {100 * count / seg_map.size:.1f}% of the image")


if __name__ == "__main__":
    main()
