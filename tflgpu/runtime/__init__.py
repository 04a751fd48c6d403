"""Runs compiled models: executors, transfers, and the partitions that the CPU runs."""
