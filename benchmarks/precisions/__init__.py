"""Errors and times of the precisions beside each other: ``python -m benchmarks.precisions MODEL...``."""
