"""The numbers that turn counted work into cycles, as data: of a GPU, of its tensor cores and of a CPU's core.

``measured_costs.json`` says for each where and when it was measured, and by which layers. Only ratios matter.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("measured_costs.json")


def measured_costs(name: str) -> dict[str, Any]:
    """The numbers of a row of the table, with tuples in place of its lists.

    Raises:
        StopIteration: The table has no such row.
    """
    row = next(row for row in json.loads(TABLE.read_text(encoding="utf-8")) if row["name"] == name)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row["costs"].items()}
