"""How large tensors of kernels on tensor cores are."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Storage = Literal["half", "float"]


ERRORS: dict[Storage, float] = {"half": 2e-3, "float": 1e-6}  # of the largest number of a result


def check_largest(got: NDArray[Any], expected: NDArray[Any], storage: Storage) -> None:
    np.testing.assert_allclose(got, expected, rtol=0, atol=ERRORS[storage] * np.nanmax(np.abs(expected)))
