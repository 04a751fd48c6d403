"""A folder of pictures over two workers of Ray."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from tests.batch.ray_process import SETTINGS
from tests.examples.page import run_example


@pytest.mark.full("it starts Ray, which takes ten seconds")
def test_every_picture_of_a_folder_gets_its_label(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    lines = run_example("batch/label_pictures.py", folder)
    rows = parquet.read_table(folder / "classes").to_pylist()
    pictures = [path.name for path in (folder / "images").iterdir() if path.suffix in (".jpg", ".png")]
    assert sorted(Path(row["path"]).name for row in rows) == sorted(pictures)
    labels = {Path(row["path"]).stem: row["label"] for row in rows}
    assert (labels["cat"], labels["bird"]) == ("Egyptian cat", "chickadee")
    assert labels["dog_segmentation"].startswith("Samoyed")
    assert [line.split()[0] for line in lines] == sorted(pictures)
