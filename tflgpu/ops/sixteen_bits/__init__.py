"""Operators of 16-bit activations, computed as LiteRT's kernels compute them: to the last bit, wherever its sets agree.

In the float view a 16-bit activation is a float, which has room for its integer. A rule takes the integers out of
the inputs, computes with whole numbers as LiteRT does, and gives the float of the integer that comes of it. Networks of
16 bits are chosen for their precision, and steps of difference add up from layer to layer.
"""

from __future__ import annotations

from tflgpu.ops.sixteen_bits import layers, lookup, lstm_memory
from tflgpu.ops.sixteen_bits.rules import RULES, rule_for

__all__ = ["RULES", "layers", "lookup", "lstm_memory", "rule_for"]
