"""Full-size networks with random weights, as TensorFlow's converter writes them for float32 inference.

They are as fast as the trained networks. All their activations are of order 1, so that they compare precisions fairly.
Their outputs have no meaning. ``python -m benchmarks.zoo NAME FILE`` writes one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.zoo.audio import fir_chain
from benchmarks.zoo.efficientnet import efficientnet_b0
from benchmarks.zoo.mobilenet import mobilenet_v1, mobilenet_v2
from benchmarks.zoo.resnet import resnet50

MODELS: dict[str, Callable[..., bytes]] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "resnet50": resnet50,
    "efficientnet_b0": efficientnet_b0,
    "fir_chain": fir_chain,
}

__all__ = ["MODELS", "efficientnet_b0", "fir_chain", "load", "mobilenet_v1", "mobilenet_v2", "resnet50"]


def load(model: str) -> bytes:
    """A model by its path, or by its name in the zoo."""
    return Path(model).read_bytes() if model.endswith(".tflite") else MODELS[model]()
