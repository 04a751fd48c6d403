"""Scripts that write the generated pages of docs/."""
