"""The drivers that the OpenCL loader is shown, and what says that they are there."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyopencl as cl

from tflgpu.runtime.opencl.drivers.libraries import MAKERS, Search, unnamed

if TYPE_CHECKING:
    from tflgpu.runtime.opencl.drivers.answers import Answer

LOGGER = logging.getLogger(__name__)

VENDORS = "OCL_ICD_VENDORS"

# A user who has set one of these has chosen. The second one is a name that ocl-icd, one of the two loaders, knows, too.
CHOICES = (VENDORS, "OPENCL_VENDOR_PATH")

INTEL_RUNTIME = "libintelocl.so"

WHEEL, NO_ICD = "wheel", "no .icd file"

# Where ocl-icd and Khronos' loader look, and Conda's.
SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
VENDOR_FOLDERS = (SYSTEM_VENDORS, Path(sys.prefix, "etc/OpenCL/vendors"))


class Source(NamedTuple):
    """library: as the loader takes it. found_by: the path of an ``.icd`` file, :data:`WHEEL` or :data:`NO_ICD`."""

    library: str
    found_by: str


class Tried(NamedTuple):
    """A library that no ``.icd`` file names, and what it answered."""

    library: str
    answer: Answer


def chosen(environment: Mapping[str, str]) -> str | None:
    """Return the variable by which the user has chosen the drivers; None if there is none.

    Args:
        environment: Variables by name.
    """
    return next((name for name in CHOICES if name in environment), None)


def icd_sources(folders: Iterable[Path]) -> Iterator[Source]:
    """Yield what the ``.icd`` files of some folders name.

    Args:
        folders: Missing ones are empty.
    """
    for folder in folders:
        for file in sorted(folder.glob("*.icd")):
            with suppress(OSError, UnicodeDecodeError):
                if library := file.read_text().partition("\n")[0].strip():
                    yield Source(library, str(file))


def intel_runtime() -> Path | None:
    """Return the library of the CPU runtime that the extra ``cpu`` installs."""
    library = Path(sys.prefix, "lib", INTEL_RUNTIME)
    return library if sys.platform == "linux" and library.exists() else None


@cache
def tried_libraries() -> tuple[Tried, ...]:
    """Yield of each driver that no ``.icd`` file names the first library that has a device; else those that have
    none."""
    if sys.platform != "linux" or chosen(os.environ):
        return ()
    # OCL_ICD_FILENAMES names libraries for Khronos' loader only, which takes each once, and pyopencl's wheels have
    # another loader.
    named = [source.library for source in icd_sources(VENDOR_FOLDERS)]
    return tuple(tried for files in unnamed(named, Search(os.environ)) for tried in _try(files))


def _try(files: Iterable[str]) -> list[Tried]:
    from tflgpu.runtime.opencl.drivers.answers import answer_of  # most starts do without

    failed = []
    for library in files:
        tried = Tried(library, answer_of(library))
        LOGGER.info("%s, which no .icd file names: %s", library, tried.answer.fault or "a driver")
        if tried.answer.devices:
            return [tried]
        failed.append(tried)
    return failed


def library_faults(maker: str, environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[str]:
    """Return what is wrong with the libraries that may be a driver, whether an ``.icd`` file names them or not.

    Args:
        maker: Of the GPUs.
        environment: Variables for the dynamic linker.
        root: Of the file system.

    Returns:
        A sentence for each library that has no device.
    """
    answers = {tried.library: tried.answer for tried in tried_libraries()}
    faults = []
    for library in Search(environment, root).files(MAKERS[maker]):
        answer = answers.get(library)
        if answer is None:
            faults.append(f"{library} is there, but has no device")
        elif answer.fault:  # or else it is the driver of another GPU
            faults.append(f"{library} {answer.fault}")
    return faults


def added_sources() -> list[Source]:
    """Return what the loader would not find by itself."""
    found = [Source(str(library), WHEEL)] if (library := intel_runtime()) else []
    found += icd_sources(VENDOR_FOLDERS[1:])
    return found + [Source(library, NO_ICD) for library, answer in tried_libraries() if answer.devices]


def source_of(platform: cl.Platform) -> Source | None:
    """Return what named the driver of a platform; None if it came by a way that is not known here."""
    return _sources_by_platform().get(platform.int_ptr)


@cache
def _sources_by_platform() -> dict[int, Source]:
    """By the handles of platforms, which drivers give to everybody who asks."""
    return {handle: source for source in _all_sources() for handle in _handles(source.library)}


def _all_sources() -> Iterator[Source]:
    wheels = Path(cl.__file__).parent / ".libs"
    for library, _ in icd_sources([wheels]):
        yield Source(str(wheels / library), WHEEL)
    variable = chosen(os.environ)
    if variable is None:
        yield from icd_sources([SYSTEM_VENDORS])
        yield from added_sources()
    elif (place := Path(os.environ[variable])).is_dir():
        yield from icd_sources([place])
    else:
        yield Source(str(place), variable)


def _handles(library: str) -> list[int]:
    """Return the platforms of a driver that this process has loaded already."""
    from tflgpu.runtime.opencl.drivers.ask_driver import platforms_of

    try:
        return platforms_of(ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY))
    except (AttributeError, OSError):
        return []
