"""The networks of ``../shared/nets``, whose weights are drawn."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

SHARED = Path(os.environ.get("TFLGPU_SHARED", Path(__file__).parents[3] / "shared"))
NAMES = sorted(path.name for path in (SHARED / "nets").glob("*.tflite.xz"))


def redrawn(name: str) -> bytes:
    """The file with its weights."""
    script = importlib.util.spec_from_file_location("redraw", SHARED / "nets" / "redraw.py")
    assert script is not None and script.loader is not None
    module = importlib.util.module_from_spec(script)
    script.loader.exec_module(module)
    model: bytes = module.redraw((SHARED / "nets" / name).read_bytes())
    return model
