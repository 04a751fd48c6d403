"""Streaming audio with state: take the noise out of speech, 8 ms at a time.

    python examples/audio/enhance.py models/dtln_model_1.tflite noisy.wav clean.wav

Recordings are WAV files of 16 kHz, one channel, 16 bits: `arecord -f S16_LE -r 16000 -d 10 noisy.wav` makes one. The
model is the first half of DTLN. From the spectrum of 32 ms it computes how much of each frequency is speech, and from
its own state what was there before: LSTM states come in and go out as tensors. They never leave the device here.
"""

from __future__ import annotations

import argparse
import wave
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import pyopencl.array as cl_array
from numpy.typing import NDArray

import tflgpu

RATE, BLOCK, STEP = 16000, 512, 128  # Hz, samples, samples
FULL_SCALE = 32768


class Enhancer:
    """Takes sound in steps of 8 ms and gives it back without noise, 24 ms late."""

    def __init__(self, path: Path) -> None:
        self.model = tflgpu.compile(path, tflgpu.Options(precision="fp32"))  # states add up rounding errors
        self.spectrum, state = self.model.inputs
        self.mask, self.new_state = self.model.outputs
        self.state_name = state.name
        # Two arrays on the device take turns: one run's new state is the next one's old state.
        self.states = [cl_array.zeros(self.model.queue, state.shape, np.float32) for _ in range(2)]
        self.block = np.zeros(BLOCK, np.float32)
        self.sum = np.zeros(BLOCK, np.float32)

    def __call__(self, step: NDArray[np.float32]) -> NDArray[np.float32]:
        """128 new samples -> 128 enhanced ones."""
        self.block = np.concatenate((self.block[STEP:], step))
        spectrum = np.fft.rfft(self.block)
        magnitude = np.abs(spectrum).astype(np.float32).reshape(self.spectrum.shape)

        old, new = self.states
        outputs = self.model.run(
            {self.spectrum.name: magnitude, self.state_name: old}, outputs={self.new_state.name: new}
        )
        self.states = [new, old]

        speech = np.fft.irfft(spectrum * outputs[self.mask.name].ravel()).astype(np.float32)
        # Each sample is in four blocks. It is complete when the last of them has been added.
        self.sum = np.concatenate((self.sum[STEP:], np.zeros(STEP, np.float32))) + speech * (STEP / BLOCK)
        return self.sum[:STEP]


def steps(recording: wave.Wave_read) -> Iterator[NDArray[np.float32]]:
    """Pieces of 128 samples from -1 to 1, as a microphone would give them; the last one is filled up with silence."""
    while data := recording.readframes(STEP):
        samples = np.frombuffer(data, "<i2")
        yield np.pad(samples, (0, STEP - len(samples))).astype(np.float32) / np.float32(FULL_SCALE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the noise out of a recording of speech.")
    parser.add_argument("model", type=Path)
    parser.add_argument("noisy", type=Path, help="WAV file, 16 kHz, one channel, 16 bits")
    parser.add_argument("clean", type=Path, help="WAV file to write")
    arguments = parser.parse_args()

    enhance = Enhancer(arguments.model)
    with wave.open(str(arguments.noisy), "rb") as noisy, wave.open(str(arguments.clean), "wb") as clean:
        if (noisy.getframerate(), noisy.getnchannels(), noisy.getsampwidth()) != (RATE, 1, 2):
            parser.error(f"{arguments.noisy} is not a recording of 16 kHz, one channel and 16 bits")
        clean.setparams(noisy.getparams())
        start = perf_counter()
        for step in steps(noisy):
            clean.writeframes((enhance(step).clip(-1, 1) * (FULL_SCALE - 1)).astype("<i2").tobytes())
        seconds, sound = perf_counter() - start, noisy.getnframes() / RATE
    print(f"{sound:.1f} s of sound in {seconds:.1f} s on {enhance.model.device.name}: {arguments.clean}")


if __name__ == "__main__":
    main()
