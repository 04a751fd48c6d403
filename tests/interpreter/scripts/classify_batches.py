"""Classify a set of images in batches; the last one is smaller, so that the model's input is resized twice."""

import sys

import numpy as np
import tflite_runtime.interpreter as tflite
from PIL import Image

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


class Classifier:
    def __init__(self, model_path):
        self.interpreter = tflite.Interpreter(model_path)
        self.batch = None

    def predict(self, images):
        if len(images) != self.batch:
            details = self.interpreter.get_input_details()[0]
            size = [len(images), *details["shape"][1:]]
            self.interpreter.resize_tensor_input(details["index"], size, strict=True)
            self.interpreter.allocate_tensors()
            self.batch = len(images)
        input_index = self.interpreter.get_input_details()[0]["index"]
        output_index = self.interpreter.get_output_details()[0]["index"]
        self.interpreter.set_tensor(input_index, images)
        self.interpreter.invoke()
        return self.interpreter.get_tensor(output_index)


def main(model_path, batch_size, *paths):
    classifier = Classifier(model_path)
    pixels = [np.asarray(Image.open(path).convert("RGB").resize((32, 32)), np.float32) for path in paths]
    for start in range(0, len(pixels), int(batch_size)):
        batch = np.stack(pixels[start : start + int(batch_size)])
        scores = classifier.predict(batch)
        print("batch of", len(batch), "->", scores.shape)
        for path, row in zip(paths[start:], scores):  # noqa: B905
            print(f"{path}: {CLASSES[np.argmax(row)]} {row.max():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
