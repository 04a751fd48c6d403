"""Files -> what a model takes: images, arrays, and the labels of its answers."""

from __future__ import annotations

from tflgpu.inputs.input_folder import input_files
from tflgpu.inputs.input_reader import InputReader, naming
from tflgpu.inputs.labels import read_labels
from tflgpu.inputs.random_inputs import random_input

__all__ = ["InputReader", "input_files", "naming", "random_input", "read_labels"]
