"""NVIDIA's machine code: what its OpenCL driver calls a program's binary is PTX, text that it compiles at every load.

``clCreateProgramWithBinary`` takes a cubin as well, and the CUDA driver, which comes with the same package, links one
from PTX without any toolkit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

import pyopencl as cl

LIBRARY = "libcuda.so.1"

INPUT_PTX = 1  # CU_JIT_INPUT_PTX
SPLIT_COMPILE = 34  # CU_JIT_SPLIT_COMPILE: the number of threads that optimize functions; 0 is all


def link_ptx(texts: Sequence[bytes], device: cl.Device) -> bytes | None:
    """Return one cubin of PTX texts; None if they are no PTX, or the driver cannot make one.

    Args:
        texts: Parts of one program.
        device: An NVIDIA GPU.
    """
    if not all(b".target sm_" in ptx[:4096] for ptx in texts):
        return None
    try:
        cuda = _Cuda(ctypes.CDLL(LIBRARY))
        with cuda.context(device):
            return cuda.link(texts)
    except (OSError, AttributeError, _Failure):  # no CUDA driver, or one that does not know these functions
        return None


class _Failure(Exception):
    """A call of the CUDA driver did not return success."""


class _Cuda:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, name)(*arguments) != 0:
            raise _Failure(name)

    @contextmanager
    def context(self, device: cl.Device) -> Iterator[None]:
        """Open the primary CUDA context of an OpenCL device, current while this is open."""
        place = f"{device.pci_domain_id_nv:04x}:{device.pci_bus_id_nv:02x}:{device.pci_slot_id_nv:02x}.0"
        ordinal, context = c_int(), c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGetByPCIBusId", byref(ordinal), place.encode())
        self._call("cuDevicePrimaryCtxRetain", byref(context), ordinal)
        try:
            self._call("cuCtxPushCurrent_v2", context)
            try:
                yield
            finally:
                self._call("cuCtxPopCurrent_v2", byref(c_void_p()))
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", ordinal)

    def link(self, texts: Sequence[bytes]) -> bytes:
        if sum(ptx.count(b".entry") for ptx in texts) > 1:  # the code of a single kernel would be another, and slower
            with suppress(_Failure):  # of a driver that does not know the option
                return self._linked(texts, {SPLIT_COMPILE: 0})
        return self._linked(texts, {})

    def _linked(self, texts: Sequence[bytes], options: dict[int, int]) -> bytes:
        state, cubin, size = c_void_p(), c_void_p(), c_size_t()
        count = len(options)
        names, values = (c_int * count)(*options), (c_void_p * count)(*options.values())
        self._call("cuLinkCreate_v2", count, names, values, byref(state))
        try:
            for ptx in texts:
                text = ptx.rstrip(b"\0")  # the driver wants, and ctypes adds, one NUL
                length = c_size_t(len(text) + 1)
                self._call("cuLinkAddData_v2", state, INPUT_PTX, c_char_p(text), length, b"tflgpu", 0, None, None)
            self._call("cuLinkComplete", state, byref(cubin), byref(size))
            return ctypes.string_at(cubin, size.value)  # the linker owns the original
        finally:
            self._call("cuLinkDestroy", state)
