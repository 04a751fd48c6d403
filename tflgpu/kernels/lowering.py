"""Which function lowers a node of which kind to a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request

Variant = Callable[[Request], Kernel]

LOWERINGS: dict[tuple[str, Literal["cpu", "gpu"]], Variant] = {}


def lowering(kind: str, *families: Literal["cpu", "gpu"]) -> Callable[[Variant], Variant]:
    """Register the decorated function for nodes of ``kind`` on the given families, both by default."""

    def register(function: Variant) -> Variant:
        for family in families or ("cpu", "gpu"):
            assert (kind, family) not in LOWERINGS, f"{kind} has two variants for {family}"
            LOWERINGS[kind, family] = function
        return function

    return register
