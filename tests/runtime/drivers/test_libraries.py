"""Where drivers' libraries are looked for, on machines that are folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tflgpu.runtime.opencl.driver_files import MULTIARCH, Search, unnamed


def found(root: Path, named: tuple[str, ...] = (), **environment: str) -> list[list[str]]:
    files = unnamed(named, Search(environment, root))
    return [[str(Path(file).relative_to(root)) for file in each] for each in files]


@pytest.mark.parametrize(
    "library",
    [
        f"usr/lib/{MULTIARCH}/libnvidia-opencl.so.1",
        "usr/local/nvidia/lib64/libnvidia-opencl.so.1",
        "usr/lib64/libmali.so.1",
        "usr/lib/libMali.so",
        f"usr/lib/{MULTIARCH}/intel-opencl/libigdrcl.so",
        "opt/rocm-6.1.0/lib/libamdocl64.so",
        "vendor/lib64/libOpenCL.so",
        "system/vendor/lib64/libOpenCL.so",
        f"usr/lib/{MULTIARCH}/libOpenCL_adreno.so.1",
        f"usr/lib/{MULTIARCH}/libPVROCL.so",
    ],
)
def test_places_of_drivers(library: str, write: Callable[..., Path], tmp_path: Path) -> None:
    write(library)
    assert found(tmp_path) == [[library]]


def test_a_loader_in_the_linkers_folders_is_no_candidate(write: Callable[..., Path], tmp_path: Path) -> None:
    write("usr/lib64/libOpenCL.so")
    assert found(tmp_path) == []


def test_the_linkers_cache(write: Callable[..., Path], tmp_path: Path) -> None:
    write("usr/lib/wsl/libnvidia-opencl.so.1")
    strings = ("libc.so.6", "/odd/libnvidia-opencl.so.1", "libnvidia-opencl.so.1", "/usr/lib/wsl/libnvidia-opencl.so.1")
    write("etc/ld.so.cache", "glibc-ld.so.cache1.1\0" + "\0".join(strings) + "\0")
    assert found(tmp_path) == [["usr/lib/wsl/libnvidia-opencl.so.1"]]


def test_the_users_folders_come_first(write: Callable[..., Path], tmp_path: Path) -> None:
    write("own/libigdrcl.so")
    write("usr/lib/libigdrcl.so")
    assert found(tmp_path, LD_LIBRARY_PATH=f"/none:{tmp_path}/own") == [["own/libigdrcl.so", "usr/lib/libigdrcl.so"]]


def test_links_to_one_file_are_one_candidate(write: Callable[..., Path], tmp_path: Path) -> None:
    library = write("usr/lib/libmali-valhall-g610-g13p0-gbm.so")
    for name in ("libmali.so.1", "libmali.so"):
        (library.parent / name).symlink_to(library.name)
    assert found(tmp_path) == [["usr/lib/libmali.so.1"]]
    assert found(tmp_path, named=(str(library),)) == []


def test_the_newest_rocm_comes_first(write: Callable[..., Path], tmp_path: Path) -> None:
    for version in ("6.1.0", "6.3.0"):
        write(f"opt/rocm-{version}/lib/libamdocl64.so")
    assert [os.path.dirname(file) for file in found(tmp_path)[0]] == ["opt/rocm-6.3.0/lib", "opt/rocm-6.1.0/lib"]


def test_what_icd_files_name_is_left_to_them(write: Callable[..., Path], tmp_path: Path) -> None:
    write("usr/lib64/libnvidia-opencl.so.1")
    other = write("opt/driver/libmali-g610.so")
    write("usr/lib64/libmali.so")
    assert found(tmp_path, named=("libnvidia-opencl.so.1",)) == [["usr/lib64/libmali.so"]]
    assert found(tmp_path, named=(str(other),)) == [["usr/lib64/libnvidia-opencl.so.1"]]


def test_an_icd_file_that_leads_nowhere_names_nothing(write: Callable[..., Path], tmp_path: Path) -> None:
    write("usr/local/nvidia/lib64/libnvidia-opencl.so.1")  # where the dynamic linker does not look
    assert len(found(tmp_path, named=("libnvidia-opencl.so.1", "/none/libamdocl64.so", "libpocl.so"))) == 1


def test_a_search_without_result_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a part of every start: some hundred looks of a few microseconds, and no folder is listed but /opt."""
    looks: list[str] = []
    exists, listdir = os.path.exists, os.scandir
    monkeypatch.setattr(os.path, "exists", lambda path: looks.append(path) or exists(path))
    monkeypatch.setattr(os, "scandir", lambda path: looks.append(f"{path}/*") or listdir(path))
    (tmp_path / "usr/lib").mkdir(parents=True)
    assert found(tmp_path) == []
    assert len(looks) < 250
    assert all("opt" in look for look in looks if look.endswith("*"))
