"""Where the cache is, who may write there, and bundles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.artifact.cache.entries import fill, metadata_of, model_key, same, stored, tensors_of
from tflgpu.artifact.cache import (
    Cache,
    default_directory,
    evict,
    pack,
)
from tflgpu.errors import CacheDirectoryError, CacheWarning

pytestmark = pytest.mark.usefixtures("fresh_warnings")


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


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 200] * 30), "a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_a_warning(name: str, tmp_path: Path) -> None:
    """The next directory is used."""
    with pytest.warns(CacheWarning, match=r"the cache .* cannot be used"):
        cache = Cache([tmp_path / name, tmp_path / "other"])
    fill(cache, range(1))
    assert stored(cache) == {0}


def test_a_directory_below_a_file_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = Cache([tmp_path / "file" / "below"])
    with pytest.warns(CacheWarning, match="no directory of the cache can be written"):
        cache.store(model_key(0), {}, metadata_of(model_key(0)))
    assert cache.load(model_key(0)) is None


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
    assert pack(cache, bundle, [model_key(0).name, model_key(1).name]).bytes == bundle.stat().st_size
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
