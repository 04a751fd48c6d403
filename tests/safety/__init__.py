"""Hostile models and files: nothing in them ends, hangs or fools the process."""
