"""Entries to test the cache with: what is stored under a key follows from the key, so every answer can be judged."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.artifact.cache import Cache, DeviceIdentity, Finding, Key, survey
from tflgpu.artifact.cache import key as keys

DEVICE = DeviceIdentity(platform="A platform OpenCL 3.0", device="A device", driver="1.2.3")


def model_key(number: int = 0, **changes: Any) -> Key:
    fields: dict[str, Any] = {
        "token": number,
        "content": f"{number:032x}",
        "options": {"precision": "fp16", "outputs": None},
        "device": DEVICE,
        "version": "0.1.0",
    }
    return keys.model_key(**(fields | changes))


def tensors_of(key: Key, size: int = 1000) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(np.frombuffer(hashlib.sha256(key.text.encode()).digest(), np.uint32))
    return {
        "weights": rng.integers(0, 1 << 16, (size, 4), np.uint16).view(np.float16),  # any bits, NaNs too
        "biases": rng.standard_normal(7).astype(np.float32),
        "binary": rng.integers(0, 256, 301, dtype=np.uint8),
    }


def metadata_of(key: Key) -> dict[str, Any]:
    return {"plan": ["conv", "relu"], "token": int(key.fields["token"], 16), "name": "Größe"}


def same(found: Any, key: Key, size: int = 1000) -> bool:
    """Whether an artifact is what was stored for ``key``, bit by bit."""
    expected = tensors_of(key, size)
    return (
        found.metadata == metadata_of(key)
        and found.tensors.keys() == expected.keys()
        and all(
            t.dtype == expected[n].dtype and t.shape == expected[n].shape and t.tobytes() == expected[n].tobytes()
            for n, t in found.tensors.items()
        )
    )


def fill(cache: Cache, numbers: range, size: int = 1000) -> None:
    """Store entries; of any two, the first one was used earlier."""
    for number in numbers:
        key = model_key(number)
        cache.store(key, tensors_of(key, size), metadata_of(key))
        for place in cache.places:
            os.utime(place.path / "v1" / key.name, (1 + number, 1 + number))


def stored(cache: Cache) -> set[int]:
    return {int(finding.key["token"], 16) for finding in survey(cache) if finding.key and "content" in finding.key}


def faulty(cache: Cache) -> list[Finding]:
    """The entries with a fault."""
    return [finding for finding in survey(cache) if finding.fault is not None]
