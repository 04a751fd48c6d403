"""The constants of a file: where their bytes lie, and dense forms of sparse ones."""
