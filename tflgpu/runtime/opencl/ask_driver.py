"""Offers of a driver's library, asked as the OpenCL loader asks it.

A driver that does not fit its hardware may crash or hang when it is loaded. So `driver_files.py` runs this file as a
program of its own, which imports nothing but the standard library: the answer goes to stdout.
"""

from __future__ import annotations

import ctypes
import os
import sys

CL_DEVICE_TYPE_ALL = 0xFFFFFFFF

# The place of clGetDeviceIDs in the table of functions that every platform begins with. The specification of
# cl_khr_icd fixes it.
GET_DEVICE_IDS = 2


def platforms_of(driver: ctypes.CDLL) -> list[int]:
    """Return the handles of a driver's platforms; none if it has no hardware.

    Args:
        driver: A library that is loaded.

    Raises:
        AttributeError: The library is no driver for the loader: for example the loader itself.
    """
    find = driver.clGetExtensionFunctionAddress
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = find(b"clIcdGetPlatformIDsKHR")
    if not address:
        raise AttributeError("it has no clIcdGetPlatformIDsKHR")
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint))
    get_platforms = prototype(address)
    count = ctypes.c_uint(0)
    if get_platforms(0, None, ctypes.byref(count)) or not count.value:
        return []
    handles = (ctypes.c_void_p * count.value)()
    if get_platforms(count.value, handles, None):
        return []
    return [handle for handle in handles if handle]


def device_count(platform: int) -> int:
    """Return the number of devices of a platform.

    Args:
        platform: A handle of :func:`platforms_of`.
    """
    table = ctypes.cast(platform, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_uint, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint)
    )
    get_devices = prototype(table[GET_DEVICE_IDS] or 0)
    count = ctypes.c_uint(0)
    return 0 if get_devices(platform, CL_DEVICE_TYPE_ALL, 0, None, ctypes.byref(count)) else count.value


def main() -> None:
    """Print as JSON what the driver at the given path says of itself."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what the driver itself prints is no answer
    try:
        driver = ctypes.CDLL(sys.argv[1])
        text = str(sum(map(device_count, platforms_of(driver))))
    except AttributeError:
        text = "is no driver that an OpenCL loader can use"
    except OSError as error:
        text = f"cannot be loaded: {error}"
    os.write(answer, text.encode())
    os._exit(0)  # without what the driver does at the end of a process


if __name__ == "__main__":
    main()
