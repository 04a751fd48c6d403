"""The numbers of kernels are data, and each says how it was found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tflgpu
from tflgpu.kernels.architecture import architectures
from tflgpu.target.kernel_numbers import kernel_numbers, rows

SOURCES = sorted(Path(tflgpu.__file__).parent.glob("kernels/**/*.py"))


@pytest.mark.parametrize("kernel", rows())
def test_each_number_says_how_it_was_found(kernel: str) -> None:
    row = rows()[kernel]
    found = [name for names in row.found for name in names.split(", ")]
    assert sorted(found) == sorted(row.numbers)
    assert all(re.search(r"assumed|counted|data sheets?|20\d\d-\d\d-\d\d", text) for text in row.found.values())


def test_each_row_has_one_kernel_that_declares_it() -> None:
    """Importing a kernel takes its numbers, and fails where the row has others."""
    architectures()
    taken = re.findall(r"kernel_numbers\(\"(.+?)\"", "".join(source.read_text() for source in SOURCES))
    assert sorted(taken) == sorted(rows())


def test_a_row_has_the_numbers_that_are_declared() -> None:
    class Other:
        pass

    with pytest.raises(TypeError):
        kernel_numbers("portable/sorting", Other)
