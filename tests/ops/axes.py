"""In which ways the rows of the op table run."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.ops.table import ROWS

FAMILIES = ("gpu", "cpu")


PRECISIONS = ("fp32", "fp16")


ONE_OF_EACH = list({row.op: row for row in reversed(ROWS)}.values())  # the first row of each operator


def is_simplest(data: st.DataObject) -> bool:
    """Whether hypothesis takes the simplest choice everywhere, as it does in the first example of each test.

    ``test_op`` runs that one for each operator alone. Other tests need not compile it again.
    """
    return data.draw(st.binary(min_size=4, max_size=4), label="zeros in the simplest example") == bytes(4)
