"""Real models, real tasks, and the op cases of TensorFlow Lite."""
