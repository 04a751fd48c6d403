"""Element types, in device memory and in registers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# In device memory, by their OpenCL C names.
ElementType = Literal["float", "half", "int", "short", "ushort", "char", "uchar", "long", "uint", "double"]

VectorType = Literal["float", "int", "long", "uint", "double"]  # in registers

HALF_MAX = 65504.0  # the greatest finite half

# Half and float have all whole numbers up to these.
HALF_WHOLE, FLOAT_WHOLE = 1 << 11, 1 << 24

WIDEST = 16  # lanes of the widest vectors of OpenCL C

# The numpy types of the same elements.
HOST_DTYPES: dict[ElementType, str] = {
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "short": "int16",
    "ushort": "uint16",
    "char": "int8",
    "uchar": "uint8",
    "long": "int64",
    "uint": "uint32",
    "double": "float64",
}

ITEM_BYTES: dict[ElementType, int] = {element: np.dtype(dtype).itemsize for element, dtype in HOST_DTYPES.items()}

# The elements of tensors whose type does not depend on the precision of the plan.
DEVICE_ELEMENTS: dict[str, ElementType] = {
    "bool": "uchar",
    **{dtype: element for element, dtype in HOST_DTYPES.items() if element != "float"},
}

# Vectors of these have functions of their own (templates/access/wide_ops.cl.j2).
WIDE: frozenset[VectorType] = frozenset(("long", "uint", "double"))


def vector_type(element: ElementType) -> VectorType:
    """Return the type in which kernels compute: halves become floats, booleans and integers of up to 16 bits ints.

    Args:
        element: The type in which a tensor is stored.
    """
    match element:
        case "float" | "half":
            return "float"
        case "long" | "uint" | "double":
            return element
        case _:
            return "int"


def vector_of(dtype: str) -> VectorType:
    """Return the type in which kernels compute with tensors of a numpy type.

    Args:
        dtype: Numpy's name of the type.
    """
    return vector_type(DEVICE_ELEMENTS.get(dtype, "float"))


def is_exact_in_half(data: NDArray[Any]) -> bool:
    """Whether half precision holds every number of an array; infinities and NaN count as not held.

    Args:
        data: Of any type.
    """
    return bool(np.all(np.clip(data, -HALF_MAX, HALF_MAX).astype(np.float16) == data))
