"""Threads, signal handlers and the end of a process."""
