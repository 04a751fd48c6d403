"""Memory and levels of a plan."""
