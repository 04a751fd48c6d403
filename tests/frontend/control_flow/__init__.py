"""WHILE and IF."""
