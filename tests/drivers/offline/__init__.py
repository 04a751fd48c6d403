"""Compilers of GPUs that are not here."""
