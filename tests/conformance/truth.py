"""How far two answers are from double precision, where they differ by more than they should.

TFLite's CPU interpreter made the expected outputs, and it rounds, too: its dynamic-range kernels round activations to
8 bits at run time. Here the model is computed in numpy, from the weights as the file has them and the inputs as given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.conformance.cases import Array, Case
from tests.support import in_double


@dataclass(frozen=True)
class Errors:
    """The largest distance of an element from double precision: of an answer, and of the recorded output."""

    got: float
    recorded: float


def errors(case: Case, got: Sequence[Array]) -> Errors | None:
    """None if the model is more than one CONV_2D of a float image."""
    if case.operators != ("CONV_2D",) or case.inputs[0].dtype != np.float32:
        return None
    (exact,) = in_double.run(case.model, *case.inputs)
    return Errors(*(float(np.abs(answer - exact).max()) for answer in (got[0], case.expected[0])))
