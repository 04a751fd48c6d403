"""The shape of the project itself."""
