"""Many rows through one model: in this process, or shared out over the workers of Ray.

Importing the package needs neither Ray nor pyarrow; only what uses them does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tflgpu.batch.predictor import Predictor

if TYPE_CHECKING:
    from tflgpu.batch.prediction import Summary, predict

__all__ = ["Predictor", "Summary", "predict"]


def __getattr__(name: str) -> Any:
    """Import what needs pyarrow when it is asked for."""
    if name in __all__:
        from tflgpu.batch import prediction

        return getattr(prediction, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
