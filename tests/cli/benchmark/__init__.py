"""What `benchmark` and `profile` measure, and how they show it."""
