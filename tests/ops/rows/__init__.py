"""The rows of the op table."""
