"""Numbers by which kernels choose their tiles, as they were measured or assumed.

The table is data, ``kernel_numbers.json``: a row for each kernel, which says of every number how it was found. A kernel
declares its numbers as a dataclass, and takes their values from the row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

TABLE = Path(__file__).with_name("kernel_numbers.json")

Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class KernelNumbers:
    """A row of the table.

    Attributes:
        kernel: The kernel, or several kernels that share the numbers.
        date: When the last of them was found, in ISO 8601.
        numbers: The values by name.
        found: How each was found: names of numbers, by commas, with a sentence.
    """

    kernel: str
    date: str
    numbers: Mapping[str, float]
    found: Mapping[str, str]


@cache
def rows() -> Mapping[str, KernelNumbers]:
    """Return the rows of the table by kernel."""
    table = (KernelNumbers(**row) for row in json.loads(TABLE.read_text(encoding="utf-8")))
    return {row.kernel: row for row in table}


def kernel_numbers(kernel: str, declared: type[Numbers]) -> Numbers:
    """Return the numbers of a kernel.

    Args:
        kernel: A name in the table.
        declared: The dataclass that declares the numbers of its row.

    Raises:
        KeyError: The table has no such kernel.
        TypeError: The row has other numbers than those that are declared.
    """
    return declared(**rows()[kernel].numbers)
