"""Under what keys entries are stored: tokens, hashes, options, and what is remembered of files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.artifact.cache.entries import DEVICE, fill, model_key
from tflgpu.artifact.cache import (
    Cache,
    FileStamp,
    content_hash,
    model_token,
    token_of,
)
from tflgpu.artifact.cache.disk_cache import RACY_NANOSECONDS
from tflgpu.artifact.cache.key import source_key

pytestmark = pytest.mark.usefixtures("fresh_warnings")


@pytest.mark.parametrize(
    "changes",
    [
        {"token": 1},
        {"content": "f" * 32},
        {"options": {"precision": "fp32", "outputs": None}},
        {"device": DEVICE._replace(driver="1.2.4")},
        {"device": DEVICE._replace(device="Another device")},
        {"device": DEVICE._replace(platform="Another platform")},
        {"version": "0.1.1"},
    ],
)
def test_whatever_changes_is_a_miss_without_a_warning(folder: Path, changes: dict) -> None:
    """Among them: other content under a token that is used again, and a new driver."""
    cache = Cache([folder])
    fill(cache, range(1))
    assert cache.load(model_key()) is not None
    assert cache.load(model_key(**changes)) is None


def test_the_order_of_options_does_not_matter() -> None:
    assert model_key(options={"a": 1, "b": [2]}).name == model_key(options={"b": [2], "a": 1}).name


@pytest.mark.parametrize("value", [float("nan"), object(), b"bytes"])
def test_options_that_have_no_canonical_text_are_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        _ = model_key(options={"a": value}).name


def test_tokens_are_fingerprints_of_farmhash() -> None:
    """The first one is from the test data of FarmHash's ports (farmhashna::Hash64, which Fingerprint64 is)."""
    assert token_of(b"0123456789'01234".hex()) == 0x4283D4EF43627F64
    assert token_of("99aa06d3014798d86001c324468d497f") == 0xC5721829A7DC63F7


def test_the_token_is_that_of_the_content_hash() -> None:
    data = b"weights"
    token = token_of(content_hash(data))
    assert model_token(data) == model_token(bytearray(data)) == model_token(memoryview(data)) == token
    assert 0 <= token < 1 << 64


def test_tokens_and_content_hashes_see_every_byte() -> None:
    data = bytes(range(256)) * 4  # with zeros, at which a C string would end
    changed = [data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :] for i in range(0, len(data), 7)] + [data + b"\0"]
    assert len({model_token(d) for d in [data, *changed]}) == len(changed) + 1
    assert len({content_hash(d) for d in [data, *changed]}) == len(changed) + 1


def test_the_content_hash_is_xxh3_128() -> None:
    """The value for no bytes is in xxHash's own documentation."""
    assert content_hash(b"") == "99aa06d3014798d86001c324468d497f"


def test_a_file_is_not_hashed_again_while_it_is_unchanged(folder: Path, tmp_path: Path) -> None:
    cache, model = Cache([folder]), tmp_path / "model.tflite"
    model.write_bytes(b"weights")
    old = time.time_ns() - 2 * RACY_NANOSECONDS
    os.utime(model, ns=(old, old))
    stamp = FileStamp.of(model.stat())._replace(changed=old)  # no one can set the time of change, so it is told here
    cache.remember_content(7, stamp, "c" * 32)
    found = cache.load(source_key(7, stamp))
    assert found is not None and found.metadata == {"content": "c" * 32}
    assert cache.known_content(7, model) is None, "the time of change is not the one that was remembered"
    cache.store(source_key(7, FileStamp.of(model.stat())), {}, {"content": "c" * 32})
    assert cache.known_content(7, model) == "c" * 32
    assert cache.known_content(8, model) is None, "another token"
    model.write_bytes(b"changed")
    os.utime(model, ns=(old, old))
    assert cache.known_content(7, model) is None, "same size, same time of modification"
    model.unlink()
    assert cache.known_content(7, model) is None


def test_a_file_that_was_just_changed_is_not_remembered(folder: Path, tmp_path: Path) -> None:
    cache, model = Cache([folder]), tmp_path / "model.tflite"
    model.write_bytes(b"weights")
    cache.remember_content(7, FileStamp.of(model.stat()), "c" * 32)
    assert cache.known_content(7, model) is None
