"""Long rows in order, by several kernels."""

from __future__ import annotations

KERNELS: tuple[str, ...] = ("long_rows", "sort_kernels")
