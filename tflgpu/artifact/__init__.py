"""A compiled model as plain data, and its way to the disk cache and back."""
