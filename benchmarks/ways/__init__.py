"""Ways to do a part of a run, beside each other on one device: ``launches``, ``transfers`` and ``precisions``."""
