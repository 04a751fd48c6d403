"""The op test table: a row per operator or upstream fault, with strategy, numpy reference and tolerance."""
