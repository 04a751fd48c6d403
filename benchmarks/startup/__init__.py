"""Cold and warm starts, each of them a process."""
