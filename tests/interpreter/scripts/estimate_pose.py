"""Find the joints of a person with PoseNet: heat maps say which cell, offsets where in it."""

import argparse

import numpy as np
from PIL import Image
from tflite_runtime.interpreter import Interpreter

KEYPOINTS = (
    "nose",
    "left eye",
    "right eye",
    "left ear",
    "right ear",
    "left shoulder",
    "right shoulder",
    "left elbow",
    "right elbow",
    "left wrist",
    "right wrist",
    "left hip",
    "right hip",
    "left knee",
    "right knee",
    "left ankle",
    "right ankle",
)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class PoseEngine:
    def __init__(self, model_path):
        self._interpreter = Interpreter(model_path, num_threads=4)
        self._interpreter.allocate_tensors()
        self._input = self._interpreter.get_input_details()[0]
        shapes = {d["shape"][-1]: d["index"] for d in self._interpreter.get_output_details()}
        self._heatmaps, self._offsets = shapes[len(KEYPOINTS)], shapes[2 * len(KEYPOINTS)]

    def detect(self, image):
        _, height, width, _ = self._input["shape"]
        pixels = np.asarray(image.resize((width, height), Image.BILINEAR), np.float32)
        self._interpreter.set_tensor(self._input["index"], (pixels[None] - 127.5) / 127.5)
        self._interpreter.invoke()
        heatmaps = self._interpreter.get_tensor(self._heatmaps)[0]
        offsets = self._interpreter.get_tensor(self._offsets)[0]
        rows, columns, count = heatmaps.shape
        for k in range(count):
            row, column = np.unravel_index(np.argmax(heatmaps[..., k]), (rows, columns))
            y = row / (rows - 1) * height + offsets[row, column, k]
            x = column / (columns - 1) * width + offsets[row, column, k + count]
            yield KEYPOINTS[k], sigmoid(heatmaps[row, column, k]), x / width * image.width, y / height * image.height


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--threshold", type=float, default=0.5)
    args = parser.parse_args()

    for name, score, x, y in PoseEngine(args.model).detect(Image.open(args.image).convert("RGB")):
        if score >= args.threshold:
            print(f"{name}: {score:.2f} at {x:.0f} {y:.0f}")
