"""Kernels for GPUs: a tile is spread over the work-items of a work-group."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE, Architecture

GPU = Architecture("gpu", lambda target: target.family == "gpu", refines=PORTABLE).register()

KERNELS: tuple[str, ...] = (
    "attention_kernel",
    "convolution_kernels",
    "depthwise_kernels",
    "depthwise_windows",
    "divided.classifiers",
    "divided.divided_keys",
    "divided.few_channels",
    "divided.shared_sums",
    "divided.shares_kernel",
    "divided.tap_sums_kernel",
    "excite_kernel",
    "fully_connected_kernels",
    "fuse_attention",
    "fuse_excitations",
    "join_attention",
    "layer_of_mean",
    "read_moved",
)
