"""Drivers: the files that name them, libraries that no file names, and GPUs that have none."""
