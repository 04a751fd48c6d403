"""The disk cache on a sound disk: keys, entries, eviction, bundles, and the written format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open

from tests.artifact import make_golden
from tests.artifact.entries import DEVICE, metadata_of, model_key, same, tensors_of
from tflgpu.artifact.cache import (
    Cache,
    FileStamp,
    KernelKey,
    content_hash,
    default_directory,
    evict,
    model_token,
    pack,
    survey,
    verify,
)
from tflgpu.artifact.cache.disk_cache import RACY_NANOSECONDS
from tflgpu.artifact.cache.key import SourceKey, TuningKey, canonical_json
from tflgpu.artifact.cache.payload import DTYPES
from tflgpu.errors import CacheDirectoryError, CacheWarning

FORMAT = Path(__file__).parents[2] / "cache_format"


pytestmark = pytest.mark.usefixtures("fresh_warnings")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fill(cache: Cache, numbers: range, size: int = 1000) -> None:
    """Store entries; of any two, the first one was used earlier."""
    for number in numbers:
        key = model_key(number)
        cache.store(key, tensors_of(key, size), metadata_of(key))
        for place in cache.places:
            os.utime(place.path / "v1" / key.name, (1 + number, 1 + number))


def stored(cache: Cache) -> set[int]:
    return {int(finding.key["token"], 16) for finding in survey(cache) if finding.key and "content" in finding.key}


def test_what_is_stored_comes_back_mapped_and_read_only(folder: Path) -> None:
    key = model_key()
    assert Cache([folder]).load(key) is None
    Cache([folder]).store(key, tensors_of(key), metadata_of(key))
    found = Cache([folder]).load(key)
    assert same(found, key)
    assert not any(tensor.flags.writeable or tensor.flags.owndata for tensor in found.tensors.values())


@settings(max_examples=60)
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
    key = KernelKey(source="__kernel void f() {}", flags="-cl-mad-enable", device=DEVICE)
    cache.store(key, {"binary.0": np.frombuffer(b"\x7fELF\0\xff", np.uint8)}, {})
    assert cache.load(key).tensors["binary.0"].tobytes() == b"\x7fELF\0\xff"
    for other in (
        replace(key, source=key.source + " "),
        replace(key, flags=""),
        replace(key, device=DEVICE._replace(driver="1.2.4")),
        replace(key, device=DEVICE._replace(device="Another device")),
        replace(key, device=DEVICE._replace(platform="Another platform")),
    ):
        assert cache.load(other) is None


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


# From the test data of FarmHash's ports (farmhashna::Hash64, which Fingerprint64 is); one of each way that the function
# treats lengths: 0, 1-3, 4-7, 8-16, 17-32, 33-64, and longer ones, with and without a remainder of 64.
FINGERPRINTS = {
    "": 0x9AE16A3B2F90404F,
    "a": 0xB3454265B6DF75E3,
    "abc": 0x24A5B3A074E7F369,
    "abcd": 0x1A5502DE4A1F8101,
    "abcdefgh": 0xFEE9D22990C82909,
    "0123456789'01234": 0x4283D4EF43627F64,
    "0123456789=012345": 0x46A7416ED4861E3B,
    "C is as portable as Stonehedge!!": 0xB944F8A16261E414,
    "Discard medicine more than two years old.": 0xE8F89AB6DF9BDD25,
    "How can you write a big system without C++?  -Paul Glick": 0x5A0A6EFD52E84E2A,
    "For every action there is an equal and opposite government program.": 0x55182F8859ECA4CE,
    "The fugacity of a constituent in a mixture of gases at a given temperature is proportional to its mole fraction.  "
    "Lewis-Randall Rule": 0x098EFF6958C5E91A,
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore "
    "magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo "
    "consequat. Duis aute irure dolor in reprehenderit in voluptate velit esse cillum dolore eu fugiat nulla pariatur. "
    "Excepteur sint occaecat cupidatat non proident, sunt in culpa qui officia deserunt mollit anim id est "
    "laborum.": 0xC3F02C4FFD5D71E6,
}


@pytest.mark.parametrize(("text", "fingerprint"), FINGERPRINTS.items(), ids=lambda v: str(v)[:12])
def test_the_token_is_farmhash_fingerprint64(text: str, fingerprint: int) -> None:
    data = text.encode()
    assert model_token(data) == fingerprint
    assert model_token(bytearray(data)) == model_token(memoryview(data)) == fingerprint


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
    stamp = FileStamp.of(model)._replace(changed=old)  # no one can set the time of change, so it is told here
    cache.remember_content(7, stamp, "c" * 32)
    found = cache.load(SourceKey(7, stamp))
    assert found is not None and found.metadata == {"content": "c" * 32}
    assert cache.known_content(7, model) is None, "the time of change is not the one that was remembered"
    cache.store(SourceKey(7, FileStamp.of(model)), {}, {"content": "c" * 32})
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
    cache.remember_content(7, FileStamp.of(model), "c" * 32)
    assert cache.known_content(7, model) is None


def test_the_least_recently_used_entries_go_first(folder: Path) -> None:
    key = model_key()
    Cache([folder]).store(key, tensors_of(key, 100_000), metadata_of(key))
    (entry,) = (finding.entry for finding in survey(Cache([folder])))
    cache = Cache([folder], limit=4 * entry.bytes + 100_000)
    fill(cache, range(4), 100_000)
    assert cache.load(model_key(1)) is not None  # used now: 0 and 2 are older
    fill(cache, range(4, 6), 100_000)
    assert stored(cache) == {1, 3, 4, 5}


def test_the_newest_entry_stays_whatever_its_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache([folder], limit=1_000_000)
    for number in range(3):
        fill(cache, range(number, number + 1), 90_000)
        assert stored(cache) == {number}


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
    cache.store(KernelKey("source", "", DEVICE), {}, {})
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
    cache.store(KernelKey("source", "-O", DEVICE), {}, {})
    (folder / "v1" / "models" / "notes.txt").write_text("mine")
    kernel, model, stranger = survey(cache)
    assert kernel.key["kind"] == "kernel" and kernel.key["flags"] == "-O" and kernel.fault is None
    assert model.key == json.loads(model_key().text)
    assert model.entry.bytes == (folder / "v1" / model_key().name).stat().st_size
    assert model.entry.used == 1 and before - 1 < kernel.entry.used < time.time() + 1
    assert verify(cache) == [stranger] and stranger.fault == "is not named like an entry"


def test_a_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        cache = Cache([tmp_path / "above" / "cache"])
        fill(cache, range(1))
    finally:
        os.umask(old)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "above" / "cache").rglob("*") if path.is_dir()}
    assert modes == {0o700}
    assert (tmp_path / "above" / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_directory_that_others_can_write_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(CacheDirectoryError, match=r"can be written by other users.*chmod go-w"):
        Cache([folder])
    folder.chmod(0o755)
    Cache([folder])


def test_a_directory_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    if os.geteuid() == 0:  # root's directories are trusted by all, so this one is given away
        os.chown(folder, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CacheDirectoryError, match="belongs to another user"):
        Cache([folder])


def test_a_bundle_that_others_can_write_is_refused(folder: Path, tmp_path: Path) -> None:
    pack(Cache([folder]), tmp_path / "models.bundle")
    (tmp_path / "models.bundle").chmod(0o666)
    with pytest.raises(CacheDirectoryError, match="can be written by other users"):
        Cache([tmp_path / "models.bundle"])


def test_where_the_cache_is_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TFLGPU_CACHE_DIR", str(tmp_path / "named"))
    assert default_directory() == tmp_path / "named"
    assert [place.path for place in Cache().places] == [tmp_path / "named"]
    monkeypatch.delenv("TFLGPU_CACHE_DIR")
    assert default_directory().name == "tflgpu"


def test_only_the_first_directory_is_written(tmp_path: Path) -> None:
    cache = Cache([tmp_path / "a", tmp_path / "b"])
    fill_key = model_key()
    cache.store(fill_key, tensors_of(fill_key), metadata_of(fill_key))
    assert stored(Cache([tmp_path / "a"])) == {0}
    assert not (tmp_path / "b").exists()
    assert same(Cache([tmp_path / "b", tmp_path / "a"]).load(fill_key), fill_key)


def test_a_cache_that_is_only_read(folder: Path) -> None:
    cache = Cache([folder], writable=False)
    fill_key = model_key()
    cache.store(fill_key, tensors_of(fill_key), metadata_of(fill_key))
    assert not folder.exists()
    fill(Cache([folder]), range(1))
    assert same(cache.load(fill_key), fill_key)


def test_bundles(folder: Path, tmp_path: Path) -> None:
    cache = Cache([folder])
    fill(cache, range(3))
    bundle = tmp_path / "models.bundle"
    assert pack(cache, bundle, [model_key(0).name, model_key(1).name]) == bundle.stat().st_size
    once = bundle.read_bytes()
    fill(cache, range(2))
    pack(cache, bundle, [model_key(1).name, model_key(0).name])
    assert bundle.read_bytes() == once, "equal entries make equal bundles"

    both = Cache([bundle, tmp_path / "other"])
    assert same(both.load(model_key(0)), model_key(0))
    assert both.load(model_key(2)) is None
    both.store(model_key(2), tensors_of(model_key(2)), metadata_of(model_key(2)))
    assert same(both.load(model_key(2)), model_key(2))
    assert stored(Cache([bundle])) == {0, 1} and stored(Cache([tmp_path / "other"])) == {2}
    evict(both)
    assert bundle.read_bytes() == once, "bundles are never written"
    assert stored(both) == {0, 1}


def test_a_bundle_is_a_zip_archive_of_aligned_entries(folder: Path, tmp_path: Path) -> None:
    import zipfile

    cache = Cache([folder])
    fill(cache, range(3))
    pack(cache, tmp_path / "models.bundle")
    data = (tmp_path / "models.bundle").read_bytes()
    with zipfile.ZipFile(tmp_path / "models.bundle") as archive:
        assert archive.testzip() is None
        for number in range(3):
            content = archive.read(f"v1/{model_key(number).name}")
            assert content == (folder / "v1" / model_key(number).name).read_bytes()
            assert data.index(content) % 64 == 0


def test_a_bundle_without_a_directory_keeps_nothing_and_says_nothing(folder: Path, tmp_path: Path) -> None:
    pack(Cache([folder]), tmp_path / "models.bundle")
    cache = Cache([tmp_path / "models.bundle"])
    fill(cache, range(0))
    cache.store(model_key(), {}, {})
    assert cache.load(model_key()) is None


def golden(name: str) -> bytes:
    return (FORMAT / "golden" / f"{name}.safetensors").read_bytes()


def place_golden(folder: Path, name: str) -> Cache:
    path = folder / "v1" / make_golden.KEY.name
    path.parent.mkdir(parents=True)
    path.write_bytes(golden(name))
    return Cache([folder])


def test_the_golden_file_of_this_format_is_read(folder: Path) -> None:
    found = place_golden(folder, "version1").load(make_golden.KEY)
    assert found is not None, "the format or the keys have changed: every cache in the field is lost"
    assert same(found, make_golden.KEY, make_golden.SIZE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("version0", "is of cache format version 0, and this tflgpu reads version 1"),
        ("damaged", "its checksum does not fit"),
    ],
)
def test_golden_files_that_are_refused_with_one_message(folder: Path, name: str, message: str) -> None:
    cache = place_golden(folder, name)
    with pytest.warns(CacheWarning, match=message) as warnings:
        assert cache.load(make_golden.KEY) is None
        assert cache.load(make_golden.KEY) is None
    assert len(warnings) == 1


def test_the_golden_files_are_all_here() -> None:
    assert {path.stem for path in (FORMAT / "golden").iterdir()} == {"version1", "version0", "damaged"}


def test_entries_are_as_the_schema_says(folder: Path) -> None:
    cache = Cache([folder])
    fill(cache, range(1))
    cache.store(KernelKey("source", "-O", DEVICE), {}, {})
    cache.store(SourceKey(7, FileStamp.of(FORMAT / "schema.json")), {}, {"content": "c" * 32})
    cache.store(TuningKey("a kernel", "fast", DEVICE, "0.1.0"), {}, {"choice": [1, 2]})
    schema = json.loads((FORMAT / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    files = [FORMAT / "golden" / "version1.safetensors", *(folder / "v1").rglob("*.safetensors")]
    assert len(files) == 5
    for file in files:
        with safe_open(file, "numpy") as standard:
            (description,) = standard.metadata().values()
            assert "~xxh3_128" in standard.keys()  # noqa: SIM118  # not a mapping
        parsed = json.loads(description)
        assert canonical_json(parsed) == description
        jsonschema.validate(parsed, schema)
        for field in parsed["key"]:
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(parsed | {"key": {k: v for k, v in parsed["key"].items() if k != field}}, schema)


def test_a_warm_start_imports_no_writer(folder: Path) -> None:
    """In a process of its own: what costs milliseconds to import is imported only by those who store or evict."""
    fill(Cache([folder]), range(1))
    code = """
import sys
from tflgpu.artifact.cache import Cache
from tests.artifact.entries import model_key
from tests.artifact.entries import same
assert same(Cache().load(model_key()), model_key())
print(*sorted({"diskcache", "safetensors", "platformdirs", "farmhash"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TFLGPU_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
