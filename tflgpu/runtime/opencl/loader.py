"""Make the OpenCL loader see the CPU runtime that the extra ``cpu`` installs, with no variable set by the user.

Intel's wheels put ``libintelocl.so`` and the libraries it needs into the environment's ``lib`` folder, where neither
the dynamic linker nor the OpenCL loader looks. So its dependencies are loaded first, and the loader is given a folder
of ``.icd`` files that has this library beside everything installed on the system.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")

VARIABLE = "OCL_ICD_VENDORS"

RUNTIME = "libintelocl.so"

# In the order in which they need each other.
DEPENDENCIES = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libtbb.so.12")


@contextmanager
def vendors_visible() -> Iterator[None]:
    """While this is open, the OpenCL loader, which reads its vendors once, finds Intel's wheel too.

    A user who set OCL_ICD_VENDORS has chosen, and is left alone.
    """
    library = _intel_runtime()
    if library is None or VARIABLE in os.environ:
        yield
        return
    _preload(library.parent)
    with tempfile.TemporaryDirectory(prefix="tflgpu-icd-") as folder:
        (Path(folder) / "intel-cpu.icd").write_text(str(library))
        for vendor in sorted(SYSTEM_VENDORS.glob("*.icd")):
            (Path(folder) / vendor.name).write_bytes(vendor.read_bytes())
        os.environ[VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[VARIABLE]


def _intel_runtime() -> Path | None:
    library = Path(sys.prefix) / "lib" / RUNTIME
    return library if sys.platform == "linux" and library.exists() else None


def _preload(folder: Path) -> None:
    for name in DEPENDENCIES:
        if (folder / name).exists():
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
