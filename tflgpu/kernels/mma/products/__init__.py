"""Products on matrix units of which both sides are computed at run time."""
