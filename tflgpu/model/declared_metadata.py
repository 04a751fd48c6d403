"""Declarations of TFLite Metadata about a model's inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Normalization:
    """Pixels 0..255 become ``(pixel - mean) / std``, each one number or one for each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class TensorMetadata:
    """Metadata of an input or output. labels: names of packed files with a label a line; those in English come
    first."""

    normalization: Normalization | None
    labels: tuple[str, ...]


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata of the main subgraph's inputs and outputs, in the file's order; empty if the file says nothing."""

    inputs: tuple[TensorMetadata, ...] = ()
    outputs: tuple[TensorMetadata, ...] = ()
