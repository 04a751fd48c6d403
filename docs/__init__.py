"""Scripts that make the generated pages of this folder."""
