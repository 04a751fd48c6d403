"""Reads and writes .tflite files, and declares what they hold."""
