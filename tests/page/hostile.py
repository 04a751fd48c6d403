"""A model whose names would like to run in a browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tflgpu.model.writer import ModelBuilder

HOSTILE = (
    "</script></style></title></textarea>--><script>alert(1)</script><img src=x onerror=alert(2)>"
    "\"'><svg onload=alert(3)>{{ 7 * 7 }}&lt;javascript:alert(4)"
)


def hostile_model(folder: Path) -> Path:
    """A convolution, two kernels after it, and their names; the file's own name is hostile as far as files let it."""
    builder = ModelBuilder(description=HOSTILE)
    x, y = builder.input((1, 2, 2, 4), name=f"{HOSTILE}x"), builder.tensor((1, 2, 2, 4), name=f"{HOSTILE}y")
    weights = builder.constant(np.ones((4, 1, 1, 4), np.float32), name=f"{HOSTILE}w")
    bias, z = builder.constant(np.zeros(4, np.float32), name=HOSTILE), builder.tensor((1, 4), name=f"{HOSTILE}z")
    axes, out = builder.constant(np.array([1, 2], np.int32)), builder.tensor((1, 4), name=f"{HOSTILE}out")
    builder.op("CONV_2D", [x, weights, bias], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    builder.op("MEAN", [y, axes], [z])
    builder.op("SOFTMAX", [z], [out], {"beta": 1.0})
    path = folder / "\"><img src=x onerror=alert(5)>&'.tflite"
    path.write_bytes(builder.finish([out]))
    return path
