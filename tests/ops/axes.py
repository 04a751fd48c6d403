"""In which ways the rows of the op table run."""

from __future__ import annotations

from tests.ops.table import ROWS

FAMILIES = ("gpu", "cpu")


PRECISIONS = ("fp32", "fp16")


ONE_OF_EACH = list({row.op: row for row in reversed(ROWS)}.values())  # the first row of each operator
