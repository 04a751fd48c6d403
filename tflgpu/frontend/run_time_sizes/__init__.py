"""Tensors with sizes that only a run can tell: each has an upper bound in memory, and a number on the device."""
