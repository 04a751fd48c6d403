"""The written format: golden files, and entries against the published schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from safetensors import safe_open

from tests.artifact.cache import make_golden
from tests.artifact.cache.entries import DEVICE, fill, same
from tflgpu.artifact.cache import (
    Cache,
    FileStamp,
    kernel_key,
)
from tflgpu.artifact.cache.key import canonical_json, probes_key, source_key, tuning_key, unit_key
from tflgpu.errors import CacheWarning

pytestmark = pytest.mark.usefixtures("fresh_warnings")
FORMAT = Path(__file__).parents[3] / "cache_format"


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
    cache.store(kernel_key("source", "-O", DEVICE), {}, {})
    cache.store(source_key(7, FileStamp.of((FORMAT / "schema.json").stat())), {}, {"content": "c" * 32})
    cache.store(tuning_key("a kernel", "fast", DEVICE, "0.1.0"), {}, {"choice": [1, 2]})
    cache.store(probes_key(1, DEVICE), {}, {"probes": {}})
    cache.store(unit_key("avx2", "source", DEVICE), {}, {"right": True})
    schema = json.loads((FORMAT / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    files = [FORMAT / "golden" / "version1.safetensors", *(folder / "v1").rglob("*.safetensors")]
    assert len(files) == 7
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
