"""``Numerics(tolerance=)``: which tensors stay in float so that outputs stay within a tolerance of the fp32 answers."""
