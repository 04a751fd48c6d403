"""A profile as a page: one HTML file with pictures, for a browser that needs nothing else."""
