"""Name sounds in memory that the program fills again and again."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.tensor_buffer import TensorBuffer


def aligned(count):
    raw = np.zeros(4 * count + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + 4 * count].view(np.float32)


def main(model_path, label_path):
    with open(label_path) as file:
        labels = file.read().splitlines()
    model = CompiledModel.from_file(model_path)
    wave = aligned(15600)
    inputs, outputs = [TensorBuffer.create_from_host_memory(wave)], model.create_output_buffers(0)
    print(inputs[0].get_tensor_details())
    time = np.arange(len(wave)) / 16000
    for hertz in (60, 440, 3000):
        wave[:] = 0.5 * np.sin(2 * np.pi * hertz * time)
        model.run_by_index(0, inputs, outputs)
        scores = outputs[0].read(521, np.float32)
        print(f"{hertz} Hz: {labels[scores.argmax()]}, {scores.max():.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
