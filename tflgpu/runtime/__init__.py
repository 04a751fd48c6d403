"""Running compiled models: executors, transfers and the piece that the CPU runs."""
