"""An OpenCL driver's compiler, as a program that compiles for another process.

It imports nothing but the standard library and calls the driver without a loader: its compiler is loaded in 0.15 s. A
request is a line of two numbers, the lengths of the options and of the source that follow. The answer is a line with
the length of the binary that follows, 0 where the source is refused. An empty line says that the compiler is there.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ulong, c_void_p
from typing import Any, BinaryIO

# How long it waits for the next request before it gives its memory back.
IDLE_SECONDS = 10.0

DEVICE_TYPE_ALL = 0xFFFFFFFF
PROGRAM_BINARY_SIZES, PROGRAM_BINARIES = 0x1165, 0x1166

# OpenCL's functions that return a status, and what they take. ctypes counts c_int for an unsigned number, too.
FUNCTIONS = {
    "clGetPlatformIDs": (c_int, c_void_p, c_void_p),
    "clGetDeviceIDs": (c_void_p, c_ulong, c_int, c_void_p, c_void_p),
    "clBuildProgram": (c_void_p, c_int, c_void_p, c_char_p, c_void_p, c_void_p),
    "clGetProgramInfo": (c_void_p, c_int, c_size_t, c_void_p, c_void_p),
    "clReleaseProgram": (c_void_p,),
}
# And those that return what they make.
MAKERS = {
    "clCreateContext": (c_void_p, c_int, c_void_p, c_void_p, c_void_p, POINTER(c_int)),
    "clCreateProgramWithSource": (c_void_p, c_int, c_void_p, c_void_p, POINTER(c_int)),
}


class Compiler:
    """The compiler of one device of a driver's first platform.

    number: of the device. Raises AttributeError for a library without OpenCL's functions, RuntimeError without a
    device.
    """

    def __init__(self, driver: Any, number: int) -> None:
        for functions, result in (FUNCTIONS, c_int), (MAKERS, c_void_p):
            for name, arguments in functions.items():
                function = getattr(driver, name)
                function.argtypes, function.restype = arguments, result
        self._driver = driver
        platform, devices = (c_void_p * 1)(), (c_void_p * (number + 1))()
        driver.clGetPlatformIDs(1, platform, None)
        driver.clGetDeviceIDs(platform[0], DEVICE_TYPE_ALL, number + 1, devices, None)
        self._device = (c_void_p * 1)(devices[number])
        self._context = driver.clCreateContext(None, 1, self._device, None, None, byref(c_int()))
        if not self._context:
            raise RuntimeError("there is no such device")

    def binary(self, source: bytes, options: bytes) -> bytes:
        """Return what the driver can load in place of a source; nothing if it refuses the source.

        Args:
            source: The program's text.
            options: The compiler's.
        """
        driver = self._driver
        program = driver.clCreateProgramWithSource(self._context, 1, (c_char_p * 1)(source), None, byref(c_int()))
        if not program:
            return b""
        try:
            if driver.clBuildProgram(program, 1, self._device, options, None, None):
                return b""
            size = (c_size_t * 1)()
            driver.clGetProgramInfo(program, PROGRAM_BINARY_SIZES, ctypes.sizeof(size), size, None)
            content = ctypes.create_string_buffer(size[0])
            place = (c_void_p * 1)(ctypes.addressof(content))
            driver.clGetProgramInfo(program, PROGRAM_BINARIES, ctypes.sizeof(place), place, None)
            return content.raw
        finally:
            driver.clReleaseProgram(program)


def serve(compiler: Compiler, requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until there are no more, or none for a while.

    Args:
        compiler: Makes the binaries.
        requests: For each program a line with the lengths of options and source, and then both.
        replies: For each program a line with the length of the binary, and then it.
    """
    replies.write(b"\n")
    replies.flush()
    while select.select([requests], [], [], IDLE_SECONDS)[0] and (line := requests.readline()):
        options, source = (requests.read(int(length)) for length in line.split())
        binary = compiler.binary(source, options)
        replies.write(b"%d\n" % len(binary))
        replies.write(binary)
        replies.flush()


def main() -> None:
    """Serve standard input and output with the driver and the number of the device that the arguments name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked, and ends this one
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the driver may write there
    compiler = Compiler(ctypes.CDLL(sys.argv[1]), int(sys.argv[2]))
    compiler.binary(b"__kernel void nothing() {}", b"")  # loads what every program needs
    serve(compiler, sys.stdin.buffer, replies)
    os._exit(0)  # without what the driver does at the end of a process


if __name__ == "__main__":
    main()
