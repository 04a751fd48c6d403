"""Options and their checks."""
