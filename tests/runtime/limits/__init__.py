"""Devices that hold little, and drivers that fail."""
