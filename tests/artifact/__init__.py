"""Artifacts and the disk cache."""
