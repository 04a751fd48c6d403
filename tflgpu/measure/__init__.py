"""Runs of plans to learn from: parameters of kernels by measuring, and the result of every kernel."""
