"""GPUs whose compiler takes PTX: half storage is read, and values are exchanged, by instructions of their own."""

from __future__ import annotations

from tflgpu.kernels.architecture import Architecture
from tflgpu.kernels.gpu import GPU

PTX = Architecture(
    "ptx", lambda target: target.ptx, refines=GPU, prelude=("ptx/storage_ptx", "ptx/warp_ptx")
).register()

PTX_HALF = Architecture(
    "ptx_half",
    lambda target: target.ptx and target.storage == "half",
    refines=PTX,
    prelude=("ptx/half_functions_ptx",),
).register()

PTX_ROUNDING = Architecture(
    "ptx_rounding",
    lambda target: target.ptx and target.matrix_unit is not None,  # from compute capability 8.0 on
    refines=PTX,
    prelude=("ptx/rounding_ptx",),
).register()

KERNELS: tuple[str, ...] = ()
