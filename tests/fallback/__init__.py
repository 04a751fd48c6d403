"""Tests of the parts that run operators on the CPU."""
