"""Damaged models, made field by field from sound ones, and what becomes of them."""
