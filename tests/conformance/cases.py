"""The cases as they lie on disk: an index that is cheap to read, and one case at a time."""

from __future__ import annotations

import csv
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kind = Literal["float", "int", "int8", "int16", "uint8", "dynamic-range", "float16-weights", "float64"]

FOLDER = Path(os.environ.get("TFLGPU_SHARED", Path(__file__).parents[3] / "shared")) / "conformance"


@dataclass(frozen=True, order=True)
class Entry:
    """One line of the index: enough to choose a case, and to find it."""

    zip: str
    id: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.zip.removesuffix('.zip')}/{self.id}"


@dataclass(frozen=True)
class Case:
    """One small model, what it is fed, and what TFLite's CPU interpreter answered.

    ``inputs``, ``expected`` and ``quanta`` are in the order of the model's own lists. A quantum is one quantization
    step in the units of its output; None for an output that has no such step. ``operators`` are the codes of the
    model's operators, in order.
    """

    zip: str
    id: str
    kind: Kind
    params: Mapping[str, Any]
    operators: tuple[str, ...]
    model: bytes = field(repr=False)
    inputs: tuple[Array, ...] = field(repr=False)
    expected: tuple[Array, ...] = field(repr=False)
    quanta: tuple[float | None, ...]


def index(folder: Path = FOLDER) -> tuple[Entry, ...]:
    """All cases, sorted; none if the folder is not there. Raises ValueError for a kind unknown to the judge."""
    file = folder / "INDEX.csv"
    if not file.is_file():
        return ()
    with file.open(newline="") as lines:
        return tuple(sorted(Entry(row["zip"], row["case_id"], _kind(row["kind"])) for row in csv.DictReader(lines)))


def load(entry: Entry, folder: Path = FOLDER) -> Case:
    """Raises KeyError if the zip has no such case."""
    with zipfile.ZipFile(folder / entry.zip) as archive:
        line = _lines(archive)[entry.id]
        model = archive.read(f"{entry.id}.tflite")
        with np.load(io.BytesIO(archive.read(f"{entry.id}.npz"))) as arrays:
            inputs = tuple(arrays[f"in_{i}"] for i in range(len(line["inputs"])))
            expected = tuple(arrays[f"out_{i}"] for i in range(len(line["outputs"])))
    quanta = tuple(output.get("quantum") for output in line["outputs"])
    return Case(
        entry.zip, entry.id, entry.kind, line["params"], tuple(line["op_sequence"]), model, inputs, expected, quanta
    )


def _kind(text: str) -> Kind:
    for kind in get_args(Kind):
        if kind == text:
            return kind  # type: ignore[no-any-return]  # get_args forgets the literal's type
    raise ValueError(f"a case of the unknown kind {text!r}")


def _lines(archive: zipfile.ZipFile) -> dict[str, dict[str, Any]]:
    """The line of ``cases.jsonl`` for each case, by its id."""
    parsed = map(json.loads, archive.read("cases.jsonl").splitlines())
    return {line["case_id"]: line for line in parsed}
