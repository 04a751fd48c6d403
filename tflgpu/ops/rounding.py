"""How an error of a node's result goes back to what its kernel reads, by the kind of node.

This is data for the analysis of half precision. A kind that is not listed passes nothing back: it is taken to bring
numbers about as near as those that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# Whole: an element of the result is one of the input, or a mean of few. Averaged: it is made of many with errors of
# their own, which leave the root of their number.
Passing = Literal["whole", "averaged"]


@dataclass(frozen=True)
class KindRule:
    """Effect of a kind of node on rounding.

    passes: how precise its inputs have to be where its result has to be precise; None: as any other tensor.
    inputs: of these inputs by number, what errors of theirs are multiplied by, beside an error of the result.
    """

    passes: Passing | None = None
    inputs: Mapping[int, float] | None = None


# Pixels from which a sample is taken at most, in coordinates of usual size.
COORDINATES = 64.0

KINDS: Mapping[str, KindRule] = {
    **dict.fromkeys(("map", "reshape", "rearrange", "strided", "gather", "concatenate", "unpool"), KindRule("whole")),
    **dict.fromkeys(("resize_bilinear", "cumulative_sum", "scatter", "join"), KindRule("whole")),
    **dict.fromkeys(("convolution", "depthwise", "fully_connected", "matmul", "reduce", "pool"), KindRule("averaged")),
    "resampler": KindRule("whole", {1: COORDINATES}),
}
