"""What a terminal of 80 columns and a pipe need: tables, progress, Ctrl-C, the log."""
