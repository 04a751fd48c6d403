"""Copies between callers' arrays on the host and the device's buffers of inputs and outputs."""
