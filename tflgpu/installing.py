"""What to install where a package is missing: tflgpu's extras, as the packages that they bring.

These can be installed beside any tflgpu, whether it came from a checkout or from a wheel.
"""

from __future__ import annotations

# The requirements of an extra, as pyproject.toml has them.
REQUIREMENTS = {
    "cpu": ("intel-opencl-rt>=2025", "intel-cmplr-lib-rt>=2025"),
    "fallback": ("ai-edge-litert>=1.2",),
    "evaluate": ("pycocotools>=2.0.7",),
    "sign": ("cryptography>=42",),
    "ray": ("ray[client,data]>=2.60", "pyarrow>=17"),
}


def install_command(extra: str) -> str:
    """A command for messages, in backquotes: ``pip install "ai-edge-litert>=1.2"``."""
    quoted = (f'"{requirement}"' for requirement in REQUIREMENTS[extra])
    return f"`pip install {' '.join(quoted)}`"
