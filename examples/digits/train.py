"""Train DigitNet on scikit-learn's handwritten digits and export it: ``python examples/digits/train.py``.

Writes ``digits.tflite`` and ``held_out.npz`` (the 20% of the images that training never saw) beside this
file, after checking that LiteRT gives PyTorch's probabilities for all of them. Takes 15 seconds on one core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from ai_edge_litert.interpreter import Interpreter
from export import export
from network import DigitNet
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).parent
SEED = 0
EPOCHS = 60
BATCH = 64
PEAK_LEARNING_RATE = 0.01
WHITE = 16  # load_digits counts the set pixels of 4x4 blocks: grey values are 0..16
TOLERANCE = 1e-5  # between LiteRT's and PyTorch's probabilities
REQUIRED_ACCURACY = 0.98


def to_tensor(images: NDArray[np.uint8]) -> Tensor:
    """Images (N, 8, 8) of 0..16 as (N, 1, 8, 8) in 0..1."""
    return torch.from_numpy(images.astype(np.float32) / WHITE)[:, None]


def shifted(images: Tensor) -> Tensor:
    """``images`` moved by up to one pixel in each direction, all alike; black comes in at the edges."""
    top, left = torch.randint(0, 3, (2,)).tolist()
    return nn.functional.pad(images, (1, 1, 1, 1))[:, :, top : top + 8, left : left + 8]


def train(images: Tensor, labels: Tensor) -> DigitNet:
    """A network fitted to ``images``, ready for inference."""
    net = DigitNet()
    optimizer = torch.optim.AdamW(net.parameters(), PEAK_LEARNING_RATE, weight_decay=0.01)
    batches = DataLoader(TensorDataset(images, labels), BATCH, shuffle=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_LEARNING_RATE, epochs=EPOCHS, steps_per_epoch=len(batches)
    )
    loss_function = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch_images, batch_labels in batches:
            optimizer.zero_grad()
            loss = loss_function(net(shifted(batch_images)), batch_labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch_images)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: training loss {total / len(images):.4f}")
    return net.eval()


def run_litert(model: bytes, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Probabilities (N, 10) of the exported model, image by image."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    classify = interpreter.get_signature_runner()
    scaled = images[:, None, :, :, None].astype(np.float32) / WHITE
    return np.concatenate([classify(image=image)["probabilities"] for image in scaled])


def main() -> None:
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    digits = load_digits()
    train_images, test_images, train_labels, test_labels = train_test_split(
        digits.images.astype(np.uint8),
        digits.target.astype(np.uint8),
        test_size=0.2,
        stratify=digits.target,
        random_state=SEED,
    )
    net = train(to_tensor(train_images), torch.from_numpy(train_labels).long())
    model = export(net)

    with torch.no_grad():
        expected = net(to_tensor(test_images)).softmax(1).numpy()
    probabilities = run_litert(model, test_images)
    difference = float(np.abs(probabilities - expected).max())
    if difference > TOLERANCE:
        raise SystemExit(f"the exported model differs from PyTorch by {difference:.2e}")
    accuracy = float((probabilities.argmax(1) == test_labels).mean())
    if accuracy < REQUIRED_ACCURACY:
        raise SystemExit(f"held-out accuracy {accuracy:.2%} is below {REQUIRED_ACCURACY:.0%}")

    (HERE / "digits.tflite").write_bytes(model)
    np.savez_compressed(HERE / "held_out.npz", images=test_images, labels=test_labels)
    print(f"exported model: {len(model)} bytes, largest difference from PyTorch {difference:.1e}")
    print(f"held-out accuracy of the exported model: {accuracy:.2%} of {len(test_labels)} images")


if __name__ == "__main__":
    main()
