"""A model whose names would like to run in a browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.models import Builder

HOSTILE = (
    "</script></style></title></textarea>--><script>alert(1)</script><img src=x onerror=alert(2)>"
    "\"'><svg onload=alert(3)>{{ 7 * 7 }}&lt;javascript:alert(4)"
)


def hostile_model(folder: Path) -> Path:
    """A convolution, two kernels after it, and their names; the file's own name is hostile as far as files let it."""
    builder = Builder(description=HOSTILE)
    x = builder.input((1, 2, 2, 4), name=f"{HOSTILE}x")
    weights = builder.constant(np.ones((4, 1, 1, 4), np.float32), name=f"{HOSTILE}w")
    bias = builder.constant(np.zeros(4, np.float32), name=HOSTILE)
    axes = builder.ints([1, 2])
    y = builder.add(
        "CONV_2D", [x, weights, bias], (1, 2, 2, 4), name=f"{HOSTILE}y", padding="SAME", stride_h=1, stride_w=1
    )
    z = builder.add("MEAN", [y, axes], (1, 4), name=f"{HOSTILE}z")
    out = builder.add("SOFTMAX", [z], (1, 4), name=f"{HOSTILE}out", beta=1.0)
    path = folder / "\"><img src=x onerror=alert(5)>&'.tflite"
    path.write_bytes(builder.finish([out]))
    return path
