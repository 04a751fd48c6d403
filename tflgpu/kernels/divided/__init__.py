"""Nodes that two kernels compute faster than one: shares of long sums, and convolutions of few output channels."""
