"""Checks of what callers give, with errors that say what was expected."""
