"""Scripts of the project, which are no part of the package."""
