"""Element types, in device memory and in registers."""

from __future__ import annotations

from typing import Literal

# In device memory, by their OpenCL C names.
ElementType = Literal["float", "half", "int", "short", "ushort", "char", "uchar"]

VectorType = Literal["float", "int"]  # in registers

ITEM_BYTES: dict[ElementType, int] = {"float": 4, "half": 2, "int": 4, "short": 2, "ushort": 2, "char": 1, "uchar": 1}

# The numpy types of the same elements.
HOST_DTYPES: dict[ElementType, str] = {
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "short": "int16",
    "ushort": "uint16",
    "char": "int8",
    "uchar": "uint8",
}


def vector_type(element: ElementType) -> VectorType:
    """What kernels compute with: halves become floats, every integer and truth value an int."""
    return "float" if element in ("float", "half") else "int"
