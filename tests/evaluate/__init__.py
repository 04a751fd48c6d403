"""Evaluations over many files."""
