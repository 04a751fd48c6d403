"""How often a model's weights are in the host's memory at once: in the file, and in the form that kernels read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.support.models import Builder
from tflgpu.options import CacheFiles, Options

ROOT = Path(__file__).parents[2]

WIDTH, LAYERS = 1024, 12
WEIGHTS = 4 * WIDTH**2 * LAYERS  # bytes


def dense(layers: int, seed: int) -> bytes:
    builder, rng = Builder(), np.random.default_rng(seed)
    x = builder.input((1, WIDTH), name="x")
    for _ in range(layers):
        x = builder.add(
            "FULLY_CONNECTED", [x, builder.constant(rng.random((WIDTH, WIDTH), np.float32)), -1], (1, WIDTH)
        )
    return builder.finish([x])


def options(start: str, folder: Path) -> Options:
    return Options(
        precision="fp32", cache="off" if start == "off" else "readwrite", cache_files=CacheFiles(path=folder / "cache")
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("start", ["off", "cold", "warm"])
def test_weights_are_held_twice_at_most_and_once_in_the_end(start: str, tmp_path: Path) -> None:
    """In the file and as kernels read them; then there, and on the device, whose memory is the host's here."""
    (tmp_path / "small.tflite").write_bytes(dense(1, 1))
    (tmp_path / "large.tflite").write_bytes(dense(LAYERS, 2))
    if start == "warm":
        tflgpu.compile(tmp_path / "large.tflite", options(start, tmp_path))
    command = [sys.executable, "-m", __spec__.name, start, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    most, held = (float(number) / WEIGHTS for number in done.stdout.split())
    assert most < 2.5
    assert held < 1.5


def main(start: str, folder: Path) -> None:
    """Print by how many bytes the process grew, at most and in the end."""
    chosen = options(start, folder)
    small = tflgpu.compile(folder / "small.tflite", chosen)  # imports all that it takes
    before = _bytes("VmRSS:")
    large = tflgpu.compile(folder / "large.tflite", chosen)
    print(_bytes("VmHWM:") - before, _bytes("VmRSS:") - before)
    del small, large


def _bytes(field: str) -> int:
    """Bytes of memory that the process has, or had at most."""
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index(field) + 1]) * 1024


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
