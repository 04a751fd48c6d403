"""Ways to hand a model's launches to a device, beside each other: ``python -m benchmarks.launches MODEL...``."""
