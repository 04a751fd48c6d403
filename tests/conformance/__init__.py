"""Every operator against TFLite's CPU interpreter, on the parameter grids of its own tests.

The cases lie in ``conformance`` of the shared folder (its README.md describes them), one zip for each operator;
``INDEX.csv`` there lists them. What does not pass today stands in ``exceptions.csv``.
"""
