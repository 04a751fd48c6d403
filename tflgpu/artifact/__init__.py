"""A compiled model as plain data, and the disk cache that keeps it."""
