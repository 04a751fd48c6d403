"""Named arrays, compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def assert_equal(got: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> None:
    """The same names, and under each the same elements."""
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
