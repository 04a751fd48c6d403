"""Nodes that two kernels compute faster than one: long sums in shares, and convolutions of few channels."""
