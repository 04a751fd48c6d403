"""Training on the device: a file with the signatures train, infer, save and restore, whose weights are variables.

    python examples/training/on_device.py --weights weights.npz

The forward pass, the gradients and the assignments are usual operators, as TensorFlow's converter writes them for a
model with such signatures. The weights stay on the device; only ``save`` and ``restore`` move them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.model.writer import ModelBuilder

Array = NDArray[np.float32]

DIGITS = Path(__file__).parents[1] / "digits" / "held_out.npz"
BATCH, PIXELS, HIDDEN, CLASSES = 40, 64, 32, 10
SHAPES = {"w1": (PIXELS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES), "b2": (CLASSES,)}


class Network(ModelBuilder):
    """One signature: operators on variables."""

    def add(
        self,
        code: str,
        inputs: list[int],
        shape: tuple[int, ...],
        name: str | None = None,
        dtype: str = "float32",
        **options: object,
    ) -> int:
        output = self.tensor(shape, dtype, name=name)
        self.op(code, inputs, [output], options)
        return output

    def handle(self, variable: str) -> int:
        return self.add("VAR_HANDLE", [], (), None, "resource", container="", shared_name=variable)

    def read(self, variable: str, name: str | None = None) -> int:
        return self.add("READ_VARIABLE", [self.handle(variable)], SHAPES[variable], name)

    def assign(self, variable: str, value: int) -> None:
        self.op("ASSIGN_VARIABLE", [self.handle(variable), value], [])

    def product(self, a: int, b: int, shape: tuple[int, int], first: bool = False, second: bool = False) -> int:
        """A product of matrices, of which the first or the second is transposed."""
        return self.add("BATCH_MATMUL", [a, b], shape, adj_x=first, adj_y=second)

    def forward(self, x: int, weights: dict[str, int], rows: int) -> tuple[int, int]:
        """The hidden activations, and the logits."""
        hidden = self.add("ADD", [self.product(x, weights["w1"], (rows, HIDDEN)), weights["b1"]], (rows, HIDDEN))
        hidden = self.add("RELU", [hidden], (rows, HIDDEN))
        logits = self.product(hidden, weights["w2"], (rows, CLASSES))
        return hidden, self.add("ADD", [logits, weights["b2"]], (rows, CLASSES), "logits")

    def sum(self, x: int, shape: tuple[int, ...], axes: tuple[int, ...], name: str | None = None) -> int:
        return self.add("SUM", [x, self.constant(np.array(axes, np.int32))], shape, name, keep_dims=False)


def training_file(rate: float = 0.5, rows: int = 1) -> bytes:
    """The model file. rate: by which gradients are multiplied. rows: images of a call of ``infer``."""
    main, first = Network(), Network()
    rng = np.random.default_rng(0)
    for variable, shape in SHAPES.items():
        scale = shape[0] ** -0.5 if len(shape) == 2 else 0
        first.assign(variable, first.constant((scale * rng.standard_normal(shape)).astype(np.float32)))
    once = main.subgraph(first)

    def signature() -> Network:
        network = Network()
        network.op("CALL_ONCE", [], [], {"init_subgraph_index": once})
        return network

    train = signature()
    main.subgraph(train, [_step(train, rate)], signature="train")
    save = signature()
    main.subgraph(save, [save.read(variable, variable) for variable in SHAPES], signature="save")
    restore = signature()
    for variable, shape in SHAPES.items():
        restore.assign(variable, restore.input(shape, name=variable))
    main.subgraph(restore, [], signature="restore")
    main.op("CALL_ONCE", [], [], {"init_subgraph_index": once})
    x = main.input((rows, PIXELS), name="images")
    _, logits = main.forward(x, {variable: main.read(variable) for variable in SHAPES}, rows)
    return main.finish([logits], signature="infer")


def _step(train: Network, rate: float) -> int:
    """One step of gradient descent. Returns the loss before it."""
    x, labels = train.input((BATCH, PIXELS), name="images"), train.input((BATCH, CLASSES), name="labels")
    weights = {variable: train.read(variable) for variable in SHAPES}
    hidden, logits = train.forward(x, weights, BATCH)
    chances = train.add("SOFTMAX", [logits], (BATCH, CLASSES), beta=1.0)
    error = train.add("SUB", [chances, labels], (BATCH, CLASSES))
    error = train.add("MUL", [error, train.constant(np.float32(1 / BATCH))], (BATCH, CLASSES))
    active = train.add("GREATER", [hidden, train.constant(np.float32(0))], (BATCH, HIDDEN), None, "bool")
    back = train.product(error, weights["w2"], (BATCH, HIDDEN), second=True)
    back = train.add("MUL", [back, train.add("CAST", [active], (BATCH, HIDDEN))], (BATCH, HIDDEN))
    gradients = {
        "w1": train.product(x, back, SHAPES["w1"], first=True),
        "b1": train.sum(back, SHAPES["b1"], (0,)),
        "w2": train.product(hidden, error, SHAPES["w2"], first=True),
        "b2": train.sum(error, SHAPES["b2"], (0,)),
    }
    for variable, gradient in gradients.items():
        step = train.add("MUL", [gradient, train.constant(np.float32(rate))], SHAPES[variable])
        train.assign(variable, train.add("SUB", [weights[variable], step], SHAPES[variable]))
    logs = train.add("LOG", [chances], (BATCH, CLASSES))
    hits = train.add("MUL", [logs, labels], (BATCH, CLASSES))
    total = train.sum(hits, (), (0, 1))
    return train.add("MUL", [total, train.constant(np.float32(-1 / BATCH))], (), "loss")


def digits() -> tuple[Array, NDArray[np.int64]]:
    """Images as rows of pixels from 0 to 1, and what they show."""
    held_out = np.load(DIGITS)
    return held_out["images"].reshape(-1, PIXELS) / np.float32(16), held_out["labels"].astype(np.int64)


def batch(images: Array, labels: NDArray[np.int64], step: int) -> dict[str, Array]:
    """The inputs of a call of ``train``."""
    chosen = np.random.default_rng(step).integers(0, len(images), BATCH)
    return {"images": images[chosen], "labels": np.eye(CLASSES, dtype=np.float32)[labels[chosen]]}


def main() -> None:
    """Train on three quarters of the digits, and show how many of the rest are right."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=300, help="of training (default: %(default)s)")
    parser.add_argument("--weights", type=Path, help="where to keep the weights; those there are trained further")
    arguments = parser.parse_args()
    images, labels = digits()
    tests = len(images) // 4
    with tflgpu.compile(training_file(rows=tests), tflgpu.Options(precision="fp32")) as model:
        train, infer = model.signatures["train"], model.signatures["infer"]
        if arguments.weights and arguments.weights.exists():
            model.signatures["restore"].run(dict(np.load(arguments.weights)))
        for step in range(arguments.steps):
            loss = train.run(batch(images[tests:], labels[tests:], step))["loss"]
            if step % 100 == 99:
                found = infer.run({"images": images[:tests]})["logits"].argmax(-1)
                print(f"step {step + 1}: loss {loss:.3f}, {np.mean(found == labels[:tests]):.1%} of {tests} are right")
        if arguments.weights:
            np.savez(arguments.weights, **model.signatures["save"].run({}))
            print(f"the weights are in {arguments.weights}")


if __name__ == "__main__":
    main()
