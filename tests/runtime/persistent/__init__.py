"""The claiming executor: one launch for each inference on a CPU."""
