"""Wait for a wake word in a stream of audio features. The model keeps what it has heard in variables of its own."""

import argparse

import numpy as np
import tflite_runtime.interpreter as tflite

FEATURES = 40


class WakeWord:
    def __init__(self, model_path, window):
        self.model = tflite.Interpreter(model_path)
        self.model.allocate_tensors()
        self.input_details = self.model.get_input_details()
        self.output_details = self.model.get_output_details()
        self.stride = self.input_details[0]["shape"][1]
        self.scores = np.zeros(window)
        self.is_quantized_model = self.input_details[0]["dtype"] == np.int8

    def quantize_input_data(self, data):
        scale, zero_point = self.input_details[0]["quantization"]
        return np.clip(data / scale + zero_point, -128, 127).astype(self.input_details[0]["dtype"])

    def dequantize_output_data(self, data):
        scale, zero_point = self.output_details[0]["quantization"]
        return scale * (data.astype(np.float32) - zero_point)

    def predict_clip(self, spectrogram):
        for start in range(0, len(spectrogram) - self.stride + 1, self.stride):
            chunk = spectrogram[start : start + self.stride]
            if self.is_quantized_model:
                chunk = self.quantize_input_data(chunk)
            self.model.set_tensor(self.input_details[0]["index"], np.reshape(chunk, self.input_details[0]["shape"]))
            self.model.invoke()
            output = self.dequantize_output_data(self.model.get_tensor(self.output_details[0]["index"])[0][0])
            self.scores = np.append(self.scores[1:], output)
            yield output, self.scores.mean()


def voice(frames):
    """Features of somebody who hums on two tones, with pauses, and says something like the word."""
    time, band = np.ogrid[:frames, :FEATURES]
    low = np.exp(-(((band - 8.7 - 6.0 * np.sin(time / 12.1)) / 2.1) ** 2))
    high = np.exp(-(((band - 36.5 - 0.6 * np.sin(time / 17.3)) / 2.1) ** 2))
    return 23.7 * (low + high) * (time % 46.1 < 32.3) + 1.9


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--window", type=int, default=5)
    args = parser.parse_args()

    wake_word = WakeWord(args.model, args.window)
    for step, (score, mean) in enumerate(wake_word.predict_clip(voice(args.frames))):
        print(f"{step}: {score:.3f} {mean:.3f}")
