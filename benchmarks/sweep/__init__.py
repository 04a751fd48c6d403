"""Operators of drawn shapes beside their rooflines."""
