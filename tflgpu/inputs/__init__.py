"""Files -> what a model takes: images, arrays, and the labels of its answers."""

from __future__ import annotations

from tflgpu.inputs.input_reader import InputReader, input_files, naming, random_input, read_labels

__all__ = ["InputReader", "input_files", "naming", "random_input", "read_labels"]
