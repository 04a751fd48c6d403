"""Mask noise in a stream of spectra. The state of one block is the input of the next: two buffers take turns."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel


def main(model_path, blocks):
    model = CompiledModel.from_file(model_path)
    spectrum, state = model.create_input_buffers(0)
    mask, next_state = model.create_output_buffers(0)
    state.write(np.zeros((1, 2, 128, 2), np.float32))
    for block in range(int(blocks)):
        wave = 1 + np.sin(np.arange(257) / (7 + block))
        spectrum.write(wave.astype(np.float32).reshape(1, 1, 257))
        model.run_by_index(0, [spectrum, state], [mask, next_state])
        state, next_state = next_state, state
        gains = mask.read(257, np.float32)
        print(f"block {block}: {gains.mean():.4f}, least {gains.min():.4f}, at 40 {gains[40]:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
