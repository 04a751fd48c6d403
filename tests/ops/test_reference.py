"""The judge is judged: reference.py, and the models that the rows write, against LiteRT's CPU interpreter.

Here, too, since no device is needed: the graphs of rows against the same references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.ops.batches import alone_and_fused, examples, in_batches, of_each
from tests.ops.case import Case, Row
from tests.ops.reference import resampler
from tests.ops.table import ROWS
from tests.ops.tolerance import check
from tests.support.planning import computed_in_numpy, graph_of

interpreter = pytest.importorskip("ai_edge_litert.interpreter")


@in_batches([row for row in ROWS if row.litert])
def test_reference_agrees_with_litert(rows: Sequence[Row]) -> None:
    for case in of_each(rows, alone_and_fused):
        if not case.litert_differs:
            tolerance = replace(case.tolerance, fp32=1e-4)
            for got, expected in zip(_run_litert(case), case.expected, strict=True):
                check(got, expected, tolerance, "fp32", case.describe)


@in_batches()
def test_graphs_mean_what_their_rows_compute(rows: Sequence[Row]) -> None:
    """In numpy, as constants are folded: of more cases than kernels are compiled for."""
    for case in of_each(rows, lambda row: examples(row.case(fused=True))):
        outputs = computed_in_numpy(graph_of(case.model), case.inputs)
        if outputs is not None:
            case.check(outputs)


def test_resampler_fades_at_the_border() -> None:
    image = np.array([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 2, 2, 1)
    places = np.array([[0, 0], [0.5, 0.5], [1.25, 1], [-0.5, 0], [1, 1.5], [-1, 0], [0, 2], [9, 9]]).reshape(1, -1, 2)
    assert resampler(image, places).reshape(-1).tolist() == [1, 2.5, 3, 0.5, 2, 0, 0, 0]


def _run_litert(case: Case) -> list[np.ndarray]:
    litert = interpreter.Interpreter(model_content=case.model, num_threads=1)
    litert.allocate_tensors()
    for detail, value in zip(litert.get_input_details(), case.inputs, strict=True):
        litert.set_tensor(detail["index"], value)
    litert.invoke()
    return [np.array(litert.get_tensor(detail["index"])) for detail in litert.get_output_details()]
