"""Long rows in order, by several kernels."""
