"""Executors under every schedule: their rendered kernels as step machines, and their host code under drawn ones."""
