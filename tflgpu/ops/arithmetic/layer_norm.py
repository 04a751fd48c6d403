"""Layer normalization. TFLite has no operator for it: a pass finds it in means and elementwise functions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerNorm:
    """``(x - mean) / sqrt(variance + epsilon)``, with mean and variance of the last axis.

    centered: whether the mean is taken away; else the variance is that around zero (RMSNorm).
    """

    epsilon: float
    centered: bool = True
