"""Checks of the reader beyond the schema: all that later stages, and LiteRT's kernels, take for granted."""
