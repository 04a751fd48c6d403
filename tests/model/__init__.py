"""Reading and writing .tflite files."""
