"""How nodes are computed: the lowerings of each architecture, the costs of their work, packing and tiling.

Importing this package imports that of every folder beside this module, and so fills
:data:`tflgpu.kernels.architecture.ARCHITECTURES`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    if _module.ispkg:
        import_module(_module.name)
