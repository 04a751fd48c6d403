"""The disk cache on a sound disk: entries and eviction."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.artifact.cache.entries import DEVICE, faulty, fill, metadata_of, model_key, same, stored, tensors_of
from tflgpu.artifact.cache import (
    Cache,
    evict,
    kernel_key,
    survey,
)
from tflgpu.artifact.cache.payload import DTYPES
from tflgpu.errors import CacheWarning

pytestmark = pytest.mark.usefixtures("fresh_warnings")


def test_what_is_stored_comes_back_mapped_and_read_only(folder: Path) -> None:
    key = model_key()
    assert Cache([folder]).load(key) is None
    Cache([folder]).store(key, tensors_of(key), metadata_of(key))
    found = Cache([folder]).load(key)
    assert same(found, key)
    assert not any(tensor.flags.writeable or tensor.flags.owndata for tensor in found.tensors.values())


@settings(max_examples=20)
@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=33, max_codepoint=125), min_size=1, max_size=9),
        st.sampled_from(sorted(DTYPES.values(), key=str)).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
        ),
        max_size=5,
    ),
    st.dictionaries(st.text(), st.recursive(st.integers() | st.booleans() | st.text() | st.none(), st.lists)),
)
def test_every_tensor_comes_back_bit_by_bit(tmp_path_factory, tensors, metadata) -> None:
    cache = Cache([tmp_path_factory.mktemp("cache")])
    cache.store(model_key(), tensors, metadata)
    found = cache.load(model_key())
    assert found.metadata == metadata
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        again = found.tensors[name]
        assert (again.dtype, again.shape, again.tobytes()) == (tensor.dtype, tensor.shape, tensor.tobytes())


def test_arrays_need_not_be_dense_or_little_endian(folder: Path) -> None:
    cache = Cache([folder])
    weights = np.arange(24, dtype=np.float32).reshape(4, 6)
    cache.store(model_key(), {"strided": weights[::2, 1::2], "turned": weights.T, "big": weights.astype(">f4")}, {})
    tensors = cache.load(model_key()).tensors
    np.testing.assert_array_equal(tensors["strided"], weights[::2, 1::2])
    np.testing.assert_array_equal(tensors["turned"], weights.T)
    np.testing.assert_array_equal(tensors["big"], weights)


@pytest.mark.parametrize(
    "tensors",
    [
        {"~x": np.zeros(1)},
        {"": np.zeros(1)},
        {"__metadata__": np.zeros(1)},
        {"ö": np.zeros(1)},
        {"a\nb": np.zeros(1)},
        {"truth": np.zeros(1, bool)},
        {"complex": np.zeros(1, complex)},
        {"object": np.array([{}])},
    ],
)
def test_what_the_format_cannot_hold_is_a_value_error(folder: Path, tensors: dict) -> None:
    with pytest.raises(ValueError, match=r"cannot (name|store)"):
        Cache([folder]).store(model_key(), tensors, {})


def test_binaries(folder: Path) -> None:
    cache = Cache([folder])
    source, flags = "__kernel void f() {}", "-cl-mad-enable"
    key = kernel_key(source, flags, DEVICE)
    cache.store(key, {"binary.0": np.frombuffer(b"\x7fELF\0\xff", np.uint8)}, {})
    assert cache.load(key).tensors["binary.0"].tobytes() == b"\x7fELF\0\xff"
    for other in (
        kernel_key(source + " ", flags, DEVICE),
        kernel_key(source, "", DEVICE),
        kernel_key(source, flags, DEVICE._replace(driver="1.2.4")),
        kernel_key(source, flags, DEVICE._replace(device="Another device")),
        kernel_key(source, flags, DEVICE._replace(platform="Another platform")),
    ):
        assert cache.load(other) is None


def test_the_least_recently_used_entries_go_first(folder: Path) -> None:
    key = model_key()
    Cache([folder]).store(key, tensors_of(key, 100_000), metadata_of(key))
    (entry,) = (finding.entry for finding in survey(Cache([folder])))
    cache = Cache([folder], limit=4 * entry.bytes + 100_000)
    fill(cache, range(4), 100_000)
    assert cache.load(model_key(1)) is not None  # used now: 0 and 2 are older
    fill(cache, range(4, 6), 100_000)
    assert stored(cache) == {1, 3, 4, 5}


def test_the_newest_entry_stays_whatever_its_time(folder: Path) -> None:
    """The clock is set back in between."""
    cache, tomorrow = Cache([folder], limit=1_000_000), time.time() + 86_400
    for number in range(3):
        fill(cache, range(number, number + 1), 90_000)
        assert stored(cache) == {number}
        (finding,) = survey(cache)
        os.utime(folder / "v1" / finding.entry.name, (tomorrow, tomorrow))


def test_an_entry_that_is_too_large_is_not_kept(folder: Path) -> None:
    cache = Cache([folder], limit=100_000)
    fill(cache, range(1), 1000)
    with pytest.warns(CacheWarning, match="larger than the cache's limit"):
        cache.store(model_key(1), tensors_of(model_key(1), 100_000), {})
    assert stored(cache) == {0}
    assert not list((folder / "v1" / "tmp").iterdir())


def test_evicting(folder: Path) -> None:
    cache = Cache([folder])
    fill(cache, range(5))
    cache.store(kernel_key("source", "", DEVICE), {}, {})
    assert [e.name for e in evict(cache, token=3)] == [model_key(3).name]
    assert stored(cache) == {0, 1, 2, 4}
    assert cache.load(model_key(4)) is not None
    assert {e.name for e in evict(cache, unused_seconds=60)} == {model_key(n).name for n in (0, 1, 2)}
    assert stored(cache) == {4}
    assert evict(cache, limit=1 << 20) == []
    assert len(evict(cache)) == 2
    assert survey(cache) == []


def test_the_survey(folder: Path) -> None:
    cache = Cache([folder])
    before = time.time()
    fill(cache, range(1))
    cache.store(kernel_key("source", "-O", DEVICE), {}, {})
    (folder / "v1" / "models" / "notes.txt").write_text("mine")
    kernel, model, stranger = survey(cache)
    assert kernel.key["kind"] == "kernel" and kernel.key["flags"] == "-O" and kernel.fault is None
    assert model.key == json.loads(model_key().text)
    assert model.entry.bytes == (folder / "v1" / model_key().name).stat().st_size
    assert model.entry.used == 1 and before - 1 < kernel.entry.used < time.time() + 1
    assert faulty(cache) == [stranger] and stranger.fault == "is not named like an entry"


def test_a_warm_start_imports_no_writer(folder: Path) -> None:
    """In a process of its own: what costs milliseconds to import is imported only by those who store or evict."""
    fill(Cache([folder]), range(1))
    code = """
import sys
from tflgpu.artifact.cache import Cache
from tests.artifact.cache.entries import model_key
from tests.artifact.cache.entries import same
assert same(Cache().load(model_key()), model_key())
print(*sorted({"diskcache", "safetensors", "platformdirs"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TFLGPU_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
