"""Make the OpenCL loader see drivers that no ``.icd`` file names, with no variable set by the user.

They are the libraries of GPUs that ``drivers/`` finds, and the CPU runtime that the extra ``cpu`` installs: Intel's
wheels put ``libintelocl.so`` and the libraries it needs into the environment's ``lib`` folder, where neither the
dynamic linker nor the OpenCL loader looks. So its dependencies are loaded first, and the loader is given a folder of
``.icd`` files that has these libraries beside everything installed on the system.

PoCL refuses to start where it cannot make its cache below the home directory. There it is given a folder of its own. On
two cores it is told to keep each of its threads to one.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tflgpu.runtime.opencl.drivers.sources import (
    SYSTEM_VENDORS,
    VENDORS,
    added_sources,
    chosen,
    icd_sources,
    intel_runtime,
)

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
