"""Output for a terminal of 80 columns and for a pipe: tables, progress, Ctrl-C, the log."""
