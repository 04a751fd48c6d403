"""Take the noise out of speech block by block, with two models that hand their states on, as DTLN's example does."""

import argparse

import numpy as np
import tflite_runtime.interpreter as tflite

block_len = 512
block_shift = 128

parser = argparse.ArgumentParser()
parser.add_argument("--model_1", required=True, help="a mask for the spectrum")
parser.add_argument("--model_2", required=True, help="a better block of samples")
parser.add_argument("--seconds", type=float, default=0.5)
args = parser.parse_args()

interpreter_1 = tflite.Interpreter(model_path=args.model_1)
interpreter_1.allocate_tensors()
interpreter_2 = tflite.Interpreter(model_path=args.model_2)
interpreter_2.allocate_tensors()

input_details_1 = interpreter_1.get_input_details()
output_details_1 = interpreter_1.get_output_details()
input_details_2 = interpreter_2.get_input_details()
output_details_2 = interpreter_2.get_output_details()

states_1 = np.zeros(input_details_1[1]["shape"]).astype("float32")
states_2 = np.zeros(input_details_2[1]["shape"]).astype("float32")

fs = 16000
time = np.arange(int(args.seconds * fs)) / fs
audio = 0.3 * np.sin(2 * np.pi * 220 * time) * (time % 0.2 < 0.1) + 0.05 * np.sin(1e5 * time**2)
out_file = np.zeros(len(audio))
in_buffer = np.zeros(block_len).astype("float32")
out_buffer = np.zeros(block_len).astype("float32")
num_blocks = (audio.shape[0] - (block_len - block_shift)) // block_shift

for idx in range(num_blocks):
    in_buffer[:-block_shift] = in_buffer[block_shift:]
    in_buffer[-block_shift:] = audio[idx * block_shift : (idx * block_shift) + block_shift]
    in_block_fft = np.fft.rfft(in_buffer)
    in_mag = np.abs(in_block_fft)
    in_phase = np.angle(in_block_fft)
    in_mag = np.reshape(in_mag, (1, 1, -1)).astype("float32")

    interpreter_1.set_tensor(input_details_1[1]["index"], states_1)
    interpreter_1.set_tensor(input_details_1[0]["index"], in_mag)
    interpreter_1.invoke()
    out_mask = interpreter_1.get_tensor(output_details_1[0]["index"])
    states_1 = interpreter_1.get_tensor(output_details_1[1]["index"])

    estimated_complex = in_mag * out_mask * np.exp(1j * in_phase)
    estimated_block = np.fft.irfft(estimated_complex)
    estimated_block = np.reshape(estimated_block, (1, 1, -1)).astype("float32")

    interpreter_2.set_tensor(input_details_2[1]["index"], states_2)
    interpreter_2.set_tensor(input_details_2[0]["index"], estimated_block)
    interpreter_2.invoke()
    out_block = interpreter_2.get_tensor(output_details_2[0]["index"])
    states_2 = interpreter_2.get_tensor(output_details_2[1]["index"])

    out_buffer[:-block_shift] = out_buffer[block_shift:]
    out_buffer[-block_shift:] = np.zeros(block_shift)
    out_buffer += np.squeeze(out_block)
    out_file[idx * block_shift : (idx * block_shift) + block_shift] = out_buffer[:block_shift]
    print(f"block {idx}: {np.sqrt(np.mean(in_buffer**2)):.4f} in, {np.sqrt(np.mean(out_buffer**2)):.4f} out")

print("Processing finished.")
