"""Random networks of many operators: what a table of operators, one at a time, cannot find."""
