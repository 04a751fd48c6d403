"""Drivers: the files that name them, libraries that no file names, and how the OpenCL loader is made to see both.

NVIDIA's container toolkit mounts the library alone, and images of boards often have nothing but the vendor's library.
A search takes some hundred looks at the file system: no folder but /opt is listed, and no program is started.

Intel's wheels, which the extra ``cpu`` installs, put ``libintelocl.so`` and the libraries it needs into the
environment's ``lib`` folder, where neither the dynamic linker nor the OpenCL loader looks. So its dependencies are
loaded first, and the loader is given a folder of ``.icd`` files that has such libraries beside everything installed on
the system.

PoCL refuses to start where it cannot make its cache below the home directory. There it is given a folder of its own. On
two cores it is told to keep each of its threads to one.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyopencl as cl


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


# A driver that opens eight GPUs takes some seconds.
SECONDS = 20.0


class Answer(NamedTuple):
    """devices: how many. fault: why there are none, as the end of a sentence that begins with the library's name."""

    devices: int
    fault: str = ""


@cache
def answer_of(library: str, seconds: float = SECONDS) -> Answer:
    """Return what a library says of itself. It is asked once in a process.

    Where no process can be started, as in a program without a Python interpreter of its own, nothing is risked.

    Args:
        library: Its path.
        seconds: How long to wait for the answer.
    """
    import subprocess  # where there is no such library, a start does without all of these

    from tflgpu.processes import can_run, signal_name
    from tflgpu.runtime.opencl import ask_driver

    script = Path(ask_driver.__file__)
    if not can_run(script):
        return Answer(0, "cannot be tried first in a process of its own")
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script), library],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(0, f"did not answer within {seconds:g} s")
    except OSError as error:
        return Answer(0, f"cannot be tried first in a process of its own: {error.strerror}")
    text = os.fsdecode(done.stdout)
    if done.returncode < 0:
        return Answer(0, f"crashes when it is loaded ({signal_name(-done.returncode)})")
    if text.isdecimal():
        return Answer(int(text), "" if int(text) else "finds no device")
    return Answer(0, text or f"ended its process with exit code {done.returncode}")


LOGGER = logging.getLogger(__name__)

VENDORS = "OCL_ICD_VENDORS"

# A user who has set one of these has chosen. The second one is a name that ocl-icd, one of the two loaders, knows, too.
CHOICES = (VENDORS, "OPENCL_VENDOR_PATH")

INTEL_RUNTIME = "libintelocl.so"

WHEEL, NO_ICD = "wheel", "no .icd file"

# Where ocl-icd and Khronos' loader look, and Conda's.
SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
ICD_FOLDERS = (SYSTEM_VENDORS, Path(sys.prefix, "etc/OpenCL/vendors"))


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
    named = [source.library for source in icd_sources(ICD_FOLDERS)]
    return tuple(tried for files in unnamed(named, Search(os.environ)) for tried in _try(files))


def _try(files: Iterable[str]) -> list[Tried]:
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
    found += icd_sources(ICD_FOLDERS[1:])
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
    from tflgpu.runtime.opencl.ask_driver import platforms_of

    try:
        return platforms_of(ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY))
    except (AttributeError, OSError):
        return []


POCL_CACHE, POCL_AFFINITY = "POCL_CACHE_DIR", "POCL_AFFINITY"

TWO_CORES = {0, 1}

# Libraries that Intel's runtime needs, in the order in which they need each other.
DEPENDENCIES = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libtbb.so.12")


@contextmanager
def drivers_visible() -> Iterator[None]:
    """While this is open, the OpenCL loader finds these drivers too, and PoCL can start. Both look only once.

    A user who set one of the variables has chosen, and is left alone. One thread at a time may open it.
    """
    with ExitStack() as stack:
        with suppress(OSError):  # nowhere to write: what the system has is found without help
            _let_pocl_start(stack)
            _keep_pocl_threads_apart(stack)
            _show_drivers(stack)
        yield


def _show_drivers(stack: ExitStack) -> None:
    if chosen(os.environ) or not (added := added_sources()):
        return
    if runtime := intel_runtime():
        _preload(runtime.parent)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tflgpu-icd-", ignore_cleanup_errors=True)))
    for i, library in enumerate({source.library: None for source in (*icd_sources([SYSTEM_VENDORS]), *added)}):
        (folder / f"{i}.icd").write_text(library)
    _set(stack, VENDORS, str(folder))


def _let_pocl_start(stack: ExitStack) -> None:
    if POCL_CACHE in os.environ or _can_be_made(_pocl_cache(os.environ)):
        return
    folder = tempfile.mkdtemp(prefix="tflgpu-pocl-")
    atexit.register(_remove, folder, os.getpid())  # PoCL uses it as long as the process lives
    _set(stack, POCL_CACHE, folder)


def _keep_pocl_threads_apart(stack: ExitStack) -> None:
    """Where there are two cores, and all are for this process: PoCL counts them from the machine's first one on."""
    if POCL_AFFINITY in os.environ or sys.platform != "linux":
        return
    if os.cpu_count() == len(TWO_CORES) and os.sched_getaffinity(0) == TWO_CORES:
        _set(stack, POCL_AFFINITY, "1")


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a child that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def _set(stack: ExitStack, name: str, value: str) -> None:
    """Set a variable of the environment until the stack is closed."""
    os.environ[name] = value
    stack.callback(os.environ.pop, name, None)


def _pocl_cache(environment: Mapping[str, str]) -> Path:
    """Where PoCL keeps its cache by itself."""
    given = environment.get("XDG_CACHE_HOME")
    return Path(given or f"{environment.get('HOME', '/tmp')}/.cache", "pocl")


def _can_be_made(folder: Path) -> bool:
    """Whether a folder is there and can be written, or can be made."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists() or path == path.parent)
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _preload(folder: Path) -> None:
    for name in DEPENDENCIES:
        if (folder / name).exists():
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
