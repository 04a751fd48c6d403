"""Meaning of the inputs and outputs of a .tflite file: TFLite Metadata, which no runtime needs."""
