"""Kernels that move elements, for devices of every architecture."""
