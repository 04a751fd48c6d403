"""A chain of long filters over a sound, as models of speech and effects have them."""

from __future__ import annotations

from benchmarks.zoo.network import Network

_SAMPLES = 800
_CHANNELS = 2
_TAPS = 512


def fir_chain(size: int = _SAMPLES, layers: int = 16, seed: int = 0) -> bytes:
    """From sound to sound (1, 1, size, 2): each of the layers is a CONV_2D of 512 taps, 1.6 million multiply-adds."""
    net = Network(f"{layers} convolutions of 1x{_TAPS} windows, random weights", seed)
    x = net.waveform(size, _CHANNELS)
    for _ in range(layers - 1):
        x = net.conv(x, _CHANNELS, (1, _TAPS), activation="RELU")
    return net.as_it_is(net.conv(x, _CHANNELS, (1, _TAPS)))
