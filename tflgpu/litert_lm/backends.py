"""Backends of LiteRT-LM: which device runs a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class Backend:
    """Kind of device that runs a model: ``Backend.CPU()`` or ``Backend.GPU()``."""

    CPU: ClassVar[type[CPU]]
    GPU: ClassVar[type[GPU]]

    def get_name(self) -> str:
        """Return the kind of device, in small letters."""
        return type(self).__name__.lower()


@dataclass(frozen=True, kw_only=True)
class CPU(Backend):
    """CPU that has an OpenCL runtime.

    Attributes:
        thread_count: How many cores to use; None for all.
    """

    thread_count: int | None = None


@dataclass(frozen=True, kw_only=True)
class GPU(Backend):
    """GPU that has an OpenCL driver.

    Attributes:
        gpu_decode_steps_per_sync: Without effect: two steps are under way at a time.
    """

    gpu_decode_steps_per_sync: int | None = None


Backend.CPU = CPU
Backend.GPU = GPU
