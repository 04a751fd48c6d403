"""The bytes of a .tflite file: reading, writing, and what is in them."""
