"""Tests of the measurements of `benchmark` and `profile`, and of how they are shown."""
