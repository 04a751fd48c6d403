"""Mutation testing: small faults, planted one at a time, and whether the tests see them."""
