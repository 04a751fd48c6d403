"""Kernels beyond the op table: fusions, matrix units, memory checks."""
