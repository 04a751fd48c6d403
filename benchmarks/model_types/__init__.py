"""One network in every type of model that TensorFlow Lite has: ``python -m benchmarks.model_types``."""
