"""The questions that the tests ask of Ray, with one start: ``python -m tests.batch.ray_session FOLDER`` prints facts as
JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from tests.batch.models import ROWS, columns, exponentials
from tflgpu.batch import Predictor, on_ray
from tflgpu.batch import on_ray as evaluation_module
from tflgpu.batch.formats import arrow_column
from tflgpu.batch.job import Job, JobFolder, PartResult
from tflgpu.batch.on_ray import EvaluationActor, PartActor, cluster, workplace
from tflgpu.batch.prediction import predict
from tflgpu.evaluate.evaluations import Difference
from tflgpu.evaluate.task import Row, Task, in_this_process
from tflgpu.options import Options, Shapes

FOLDER = Path(sys.argv[1])


class Mortal(PartActor):
    """Is killed once, in the midst of its parts, and leaves a file that says how it started."""

    def __init__(self, job: Job, folder: JobFolder, place: Path = FOLDER) -> None:
        super().__init__(job, folder)
        self._place = place
        if self._predictor:
            seconds = self._predictor._predictor.model.seconds
            (place / f"{os.getpid()}.start").write_text(json.dumps(list(seconds)))

    def compute(self, part: int) -> tuple[int, PartResult]:
        obituary = self._place / "killed"
        if part == 1 and not obituary.exists():
            obituary.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(part)


def write_input(folder: Path) -> None:
    """Rows in three files, with a column that is no input and in which values are missing."""
    given = columns(ROWS) | {"id": np.arange(ROWS)}
    table = pa.table({name: arrow_column(column) for name, column in given.items()})
    table = table.append_column("name", pa.array([None if n % 3 else f"row {n}" for n in range(ROWS)]))
    folder.mkdir()
    for start, end in ((0, 90), (90, 260), (260, ROWS)):
        pq.write_table(table.slice(start, end - start), folder / f"{start:03}.parquet")


class MortalActor(EvaluationActor):
    """Is killed once."""

    folder = FOLDER

    def row(self, file: Path) -> Row:
        obituary = self.folder / "killed too"
        if file.stem == "3" and not obituary.exists():
            obituary.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().row(file)


def evaluation() -> tuple[Task, list[Path]]:
    model = FOLDER / "model.tflite"
    model.write_bytes(exponentials())
    files = [FOLDER / f"{number}.npz" for number in range(8)]
    for number, file in enumerate(files):
        given = columns(8)
        np.savez(file, **{name: column[number : number + 1] for name, column in given.items()})
    return Difference(model=model, options=Options(precision="fp32")), files


def timeless(rows: Iterable[Row]) -> list[Row]:
    """In the order of files, and without what differs from run to run."""
    kept = [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]
    return sorted(kept, key=lambda row: str(row["file"]))


def main() -> None:
    task, files = evaluation()
    with in_this_process(task) as here_place:
        rows_here = timeless(here_place.rows(files))
    inputs = FOLDER / "inputs"
    write_input(inputs)
    model = exponentials()
    options = Options(shapes=Shapes(batch=16), precision="fp32")
    predict(model, inputs, FOLDER / "here", options)
    on_ray.PartActor = Mortal  # type: ignore[misc]
    predict(model, inputs, FOLDER / "ray", options, workers=2)
    on_ray.PartActor = PartActor  # type: ignore[misc]
    try:
        predict(model, inputs, FOLDER / "fails", options, columns={"x": "nothing"}, workers=2)
    except ValueError as error:
        failure = str(error)
    with cluster(None):
        dataset = ray.data.read_parquet(str(inputs), override_num_blocks=5).map_batches(
            Predictor,
            fn_constructor_args=(model, options),
            fn_constructor_kwargs={"devices": [0, 0]},
            batch_size=37,
            concurrency=2,
            num_cpus=0,
        )
        public = pa.concat_tables(dataset.iter_batches(batch_size=None, batch_format="pyarrow")).sort_by("id")
        evaluation_module.EvaluationActor = MortalActor  # type: ignore[misc]
        place = workplace(task, 2)
        evaluated = timeless(place.rows(files)) == rows_here and place.engines == here_place.engines
    here, there = (pq.read_table(FOLDER / name) for name in ("here", "ray"))
    print(
        json.dumps(
            {
                "equal": here.equals(there),
                "rows": len(there),
                "ids": there["id"].to_pylist() == list(range(ROWS)),
                "killed": (FOLDER / "killed").exists(),
                "starts": [json.loads(path.read_text()) for path in FOLDER.glob("*.start")],
                "public": np.array_equal(
                    np.stack(public["y"].to_pylist()), here["y"].combine_chunks().to_numpy_ndarray()
                ),
                "evaluated": evaluated and (FOLDER / "killed too").exists(),
                "failure": failure,
            }
        )
    )


if __name__ == "__main__":
    main()
