"""Tests of the disk cache."""
