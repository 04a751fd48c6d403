"""Cold and warm starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tflgpu.api import CompiledModel


def is_cold(model: CompiledModel) -> bool:
    """Whether a model was compiled, and not taken from the cache: only then is there a stage in which it is planned."""
    return "plan" in model.seconds
