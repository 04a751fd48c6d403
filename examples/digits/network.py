"""The digit classifier in PyTorch: a small network with one of each structure that the compiler fuses."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DigitNet(nn.Module):
    """Logits (N, 10) of grey images (N, 1, 8, 8) in 0..1.

    Convolution; depthwise separable convolution; residual block; max pool; squeeze-and-excite (Hu et al.,
    2018); global mean; dense layer. A batch norm follows each convolution of the trunk, which needs no bias.
    """

    def __init__(self, stem: int = 16, width: int = 32, squeezed: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, stem, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(stem)
        self.depthwise = nn.Conv2d(stem, stem, 3, padding=1, groups=stem, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(stem)
        self.pointwise = nn.Conv2d(stem, width, 1, bias=False)
        self.pointwise_norm = nn.BatchNorm2d(width)
        self.residual = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.residual_norm = nn.BatchNorm2d(width)
        self.squeeze = nn.Conv2d(width, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, width, 1)
        self.classifier = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = torch.relu(self.stem_norm(self.stem(images)))
        x = nn.functional.relu6(self.depthwise_norm(self.depthwise(x)))
        x = nn.functional.relu6(self.pointwise_norm(self.pointwise(x)))
        x = torch.relu(x + self.residual_norm(self.residual(x)))
        x = nn.functional.max_pool2d(x, 2)
        gate = torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))
        x = x * torch.sigmoid(self.excite(gate))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits
