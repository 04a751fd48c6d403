"""Reading what models take."""
