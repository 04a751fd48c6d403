"""How nodes are computed: the lowerings of each architecture, the costs of their work, packing and tiling.

Importing this package imports every folder beside this module, an architecture each, and so fills
:data:`tflgpu.kernels.architecture.LOWERINGS`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
