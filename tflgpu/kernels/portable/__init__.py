"""Kernels that compute, for devices of every architecture."""
