"""Many rows through one model: in this process, or shared out over the workers of Ray Data.

Importing the package needs neither Ray nor pyarrow; only what uses them does.
"""

from __future__ import annotations

from tflgpu.batch.predictor import Predictor

__all__ = ["Predictor"]
