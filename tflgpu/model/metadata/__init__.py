"""What a .tflite file says about the meaning of its inputs and outputs: TFLite Metadata, which no runtime needs."""
