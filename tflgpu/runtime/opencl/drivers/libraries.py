"""Drivers' libraries by their names, for systems that have them without an ``.icd`` file.

NVIDIA's container toolkit mounts the library alone, and images of boards often have nothing but the vendor's library.
A search takes some hundred looks at the file system: no folder but /opt is listed, and no program is started.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Driver(NamedTuple):
    """One driver and the files that it may be, the better ones first.

    names: wherever the dynamic linker looks, and in ``folders``. own: paths, where a name alone would be another thing.
    Folders and paths are below the root; ``*`` in them stands for any name.
    """

    names: tuple[str, ...]
    folders: tuple[str, ...]
    own: tuple[str, ...] = ()


MULTIARCH = f"{os.uname().machine}-linux-gnu" if hasattr(os, "uname") else ""

# Where the dynamic linker looks without being told.
DEFAULT_FOLDERS = (
    *(f"usr/lib/{MULTIARCH}", f"lib/{MULTIARCH}", "usr/lib64", "lib64", "usr/lib", "lib"),
    *("usr/local/lib", f"usr/local/lib/{MULTIARCH}"),
)

# Folders of the hardware's maker, in Android and in the distributions made from it.
VENDOR_FOLDERS = ("vendor/lib64", "system/vendor/lib64", "odm/lib64")

NVIDIA = Driver(
    ("libnvidia-opencl.so.1",),
    (
        f"usr/lib/{MULTIARCH}/nvidia/current",
        f"usr/lib/{MULTIARCH}/nvidia",
        "usr/lib64/nvidia",
        "usr/lib/nvidia",
        "usr/local/nvidia/lib64",  # Google's Kubernetes
        "run/opengl-driver/lib",  # NixOS
    ),
)
INTEL = Driver(
    ("libigdrcl.so",),
    (
        f"usr/lib/{MULTIARCH}/intel-opencl",
        "usr/lib64/intel-opencl",
        "usr/lib/intel-opencl",
        "usr/local/lib/intel-opencl",
        "opt/intel/opencl",
        "opt/intel/opencl/lib64",
        "run/opengl-driver/lib/intel-opencl",
    ),
)
AMD = Driver(
    ("libamdocl64.so",),
    ("opt/rocm*/lib", "opt/rocm*/opencl/lib", f"opt/amdgpu-pro/lib/{MULTIARCH}", f"opt/amdgpu/lib/{MULTIARCH}"),
)
# Mali, Adreno and PowerVR. A board has one of them, and often the same driver under several names; a libOpenCL.so is
# a driver in the maker's folders only.
BOARD = Driver(
    (
        *("libmali.so.1", "libmali.so", "libMali.so"),
        *("libOpenCL_adreno.so.1", "libOpenCL_adreno.so"),
        *("libPVROCL.so.1", "libPVROCL.so"),
    ),
    (f"usr/lib/{MULTIARCH}/mali", "usr/lib/mali", *VENDOR_FOLDERS),
    tuple(f"{folder}/libOpenCL.so" for folder in VENDOR_FOLDERS),
)
DRIVERS = (NVIDIA, INTEL, AMD, BOARD)
MAKERS = {"NVIDIA": NVIDIA, "Intel": INTEL, "AMD": AMD, "Mali": BOARD, "Adreno": BOARD, "PowerVR": BOARD}


class Search:
    """A look for libraries below a root, as the dynamic linker with these variables would have it."""

    def __init__(self, environment: Mapping[str, str], root: Path = Path("/")) -> None:
        self._root = str(root)
        paths = environment.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
        self._folders = [os.path.abspath(path) for path in paths if path] + list(map(self._below, DEFAULT_FOLDERS))
        try:
            self._cache = Path(self._below("etc/ld.so.cache")).read_bytes()
        except OSError:  # another C library than glibc
            self._cache = b""

    def by_linker(self, name: str) -> Iterator[str]:
        """Yield the files of a name that the dynamic linker could take.

        Args:
            name: A file name without a folder.
        """
        yield from filter(os.path.exists, (os.path.join(folder, name) for folder in self._folders))
        # The cache has every path as a string that ends with a zero byte.
        ending, end = f"/{name}\0".encode(), 0
        while (end := self._cache.find(ending, end)) >= 0:
            start = self._cache.rfind(b"\0", 0, end) + 1
            end += len(ending)
            path = self._below(os.fsdecode(self._cache[start : end - 1]).lstrip("/"))
            if os.path.exists(path):
                yield path

    def files(self, driver: Driver) -> list[str]:
        """Return the files that may be a driver, each once, whatever links lead to it."""
        found = [path for name in driver.names for path in self.by_linker(name)]
        for pattern in (*(f"{folder}/{name}" for folder in driver.folders for name in driver.names), *driver.own):
            if "*" in pattern:
                found += sorted(map(str, Path(self._root).glob(pattern)), reverse=True)  # the newest version first
            elif os.path.exists(path := self._below(pattern)):
                found.append(path)
        files: dict[str, str] = {}
        for path in found:
            files.setdefault(os.path.realpath(path), path)
        return list(files.values())

    def resolve(self, library: str) -> str | None:
        """Return the file that a library's name stands for; None if there is none.

        Args:
            library: The text of an ``.icd`` file: a path, or a name for the dynamic linker.
        """
        if "/" in library:
            return os.path.realpath(library) if os.path.exists(library) else None
        return next((os.path.realpath(path) for path in self.by_linker(library)), None)

    def _below(self, path: str) -> str:
        return os.path.join(self._root, path)


def unnamed(named: Iterable[str], search: Search) -> Iterator[list[str]]:
    """Yield for each driver that no ``.icd`` file names the files that may be it; most drivers have none.

    Args:
        named: The libraries of the ``.icd`` files. A name that leads to no file names nothing.
        search: Finds files.
    """
    there = {name: path for name in named if (path := search.resolve(name))}
    known = tuple(os.path.basename(path).lower() for path in (*there, *there.values()))
    for driver in DRIVERS:
        files = search.files(driver)
        stems = tuple(name.partition(".so")[0].lower() for name in driver.names)
        linked = {*there.values()} & {*map(os.path.realpath, files)}
        if files and not linked and not any(name.startswith(stems) for name in known):
            yield files
