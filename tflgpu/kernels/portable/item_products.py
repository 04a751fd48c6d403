"""Parameters of the skeleton of matrix products whose work-items compute their own results; its loaders extend them."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import Size
from tflgpu.kernels.kernel import Parameters


@dataclass(frozen=True, kw_only=True)
class ItemProductsParameters(Parameters):
    """Parameters of ``templates/portable/item_products.cl.j2``."""

    rows: int
    slices_out: int
    split_k: int
    per_tile: Size
