"""Streaming audio, on speech made of vowels in white noise."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from tests.examples.page import run_example

RATE, BLOCK, STEP, LATE = 16000, 512, 128, 384

VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))  # formants, Hz

Sound = NDArray[np.float64]


def vowel(pitch: float, formants: tuple[int, ...]) -> Sound:
    """A fifth of a second: harmonics of the pitch, the louder the nearer they are to a formant."""
    time = np.arange(RATE // 5) / RATE
    phase = 2 * np.pi * pitch * (time + 0.004 * np.sin(2 * np.pi * 3 * time))
    near = [sum(1 / (1 + ((pitch * n - f) / 90) ** 2) for f in formants) / n for n in range(1, 30)]
    sound = sum(level * np.sin(n * phase) for n, level in enumerate(near, 1)) * np.hanning(len(time))
    return np.asarray(sound / np.abs(sound).max())


def speech() -> Sound:
    pause = np.zeros(RATE // 10)
    words = [part for i in range(8) for part in (vowel(110 + 10 * (i % 4), VOWELS[i % 5]), pause)]
    return 0.4 * np.concatenate(words)


def write(path: Path, sound: Sound) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((sound * 32767).astype("<i2").tobytes())


def read(path: Path) -> Sound:
    with wave.open(str(path), "rb") as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768


def enhanced(model: Path, noisy: Sound) -> Sound:
    """LiteRT's result: every block of 32 ms at its place, the state from one to the next."""
    interpreter = Interpreter(str(model))
    interpreter.allocate_tensors()
    spectrum, state = (detail["index"] for detail in interpreter.get_input_details())
    mask, new_state = (detail["index"] for detail in interpreter.get_output_details())
    padded = np.concatenate((np.zeros(LATE), noisy, np.zeros(-len(noisy) % STEP)))
    result: NDArray[Any] = np.zeros(len(padded))
    interpreter.set_tensor(state, np.zeros((1, 2, 128, 2), np.float32))
    for start in range(0, len(padded) - LATE, STEP):
        block = np.fft.rfft(padded[start : start + BLOCK])
        interpreter.set_tensor(spectrum, np.abs(block).astype(np.float32)[None, None])
        interpreter.invoke()
        result[start : start + BLOCK] += np.fft.irfft(block * interpreter.get_tensor(mask).ravel()) / 4
        interpreter.set_tensor(state, interpreter.get_tensor(new_state))
    return result[: len(padded) - LATE]


@pytest.mark.full("a real model")
def test_noise_is_taken_out_of_speech(folder: Path) -> None:
    clean = speech()
    write(folder / "noisy.wav", clean + np.random.default_rng(0).normal(0, 0.03, len(clean)))
    (line,) = run_example("audio/enhance.py", folder)
    assert line.startswith("2.4 s of sound in ") and line.endswith(": clean.wav")

    noisy, result = read(folder / "noisy.wav"), read(folder / "clean.wav")
    np.testing.assert_allclose(result, enhanced(folder / "models" / "dtln_model_1.tflite", noisy), atol=2e-3)
    pauses = clean[:-LATE] == 0
    assert result[LATE : len(clean)][pauses].std() < noisy[:-LATE][pauses].std() / 2
