"""Models, reports and profiles as tables in terminals and notebooks, and what a model knows of its file."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.support.models import Builder
from tflgpu.report.profile import KernelTime, Profile
from tflgpu.report.table import Table

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"


class Cells(HTMLParser):
    """The texts of all cells, row by row. Every element is closed in its place."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_a_table_is_aligned_and_escaped() -> None:
    table = Table("<title>", ("name", "us"), [("a<b>&c", "1.5"), ("d", "10.25")], right=("us",), notes=("x < y",))
    assert table.text().splitlines() == ["<title>", "name       us", "a<b>&c    1.5", "d       10.25", "x < y"]
    assert Cells(table.html()).rows == [["name", "us"], ["a<b>&c", "1.5"], ["d", "10.25"]]
    assert "<title>" not in table.html()
    assert "<p>x &lt; y</p>" in table.html()


def test_a_model_is_a_table() -> None:
    model = tflgpu.compile(DIGITS)
    assert str(model).splitlines()[0].startswith("digits.tflite on ")
    shown = Cells(model._repr_html_()).rows
    assert shown[1:] == [
        ["input", "image", "float32", "[1, 8, 8, 1]", ""],
        ["output", "probabilities", "float32", "[1, 10]", ""],
    ]
    assert repr(model).startswith("<CompiledModel on ")
    assert "all 16 operators can run on the device" in str(model)


def test_names_of_a_file_are_no_html() -> None:
    builder = Builder()
    x = builder.input((1, 4), name="<script>x</script>")
    model = tflgpu.compile(builder.finish([builder.add("EXP", [x], (1, 4), name="y")]))
    assert "<script>" not in model._repr_html_()
    assert Cells(model._repr_html_()).rows[1][1] == "<script>x</script>"


def test_a_report_is_a_table_of_operators() -> None:
    report = tflgpu.compile(DIGITS).report
    rows = Cells(report._repr_html_()).rows
    assert len(rows) == 1 + len(report.operators)
    assert rows[1][:4] == ["0", "CONV_2D", "1", "device"]
    assert f"{report.constant_bytes} bytes of constants" in report._repr_html_()


def test_a_profile_is_a_table_of_kernels() -> None:
    times = [KernelTime("conv_1", ("CONV_2D",), 0.0, 3e-6, 3000, 6000, 1, 1, 0, 0)]
    profile = Profile((*times, KernelTime("map_2", (), 3e-6, 1e-6, 0, 10, 1, 1, 1, 0)), (2e-6,))
    lines = str(profile).splitlines()
    assert lines[0] == "2 kernels, 4.0 us on the device"
    assert lines[2].split() == ["0", "CONV_2D", "conv", "3.0", "75%", "2.0", "2.0"]
    assert lines[-1] == "partition 0 on the CPU: 2.0 us"
    assert [len(row) for row in Cells(profile._repr_html_()).rows] == [7, 7, 7]
    model = tflgpu.compile(DIGITS)
    measured = model.profile(np.zeros((1, 8, 8, 1), np.float32), 1)
    assert len(str(measured).splitlines()) == 2 + len(measured.kernels)
    several = model.profile(np.zeros((1, 8, 8, 1), np.float32), 9)
    assert all(k.short is not None and k.long is not None and 0 <= k.short <= k.long for k in several.kernels)


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_a_model_knows_the_labels_of_its_file(shared: Path) -> None:
    path = shared / "models" / "yamnet_audio_classifier_with_metadata.tflite"
    model = tflgpu.compile(path)
    assert (len(model.labels), model.labels[0]) == (521, "Speech")
    assert model.metadata.outputs[0].labels == ("yamnet_label_list.txt",)
    assert tflgpu.compile(DIGITS).labels == ()
    assert tflgpu.compile(DIGITS.read_bytes()).metadata.inputs == ()


def test_labels_of_a_file_that_has_changed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(DIGITS.read_bytes())
    model = tflgpu.compile(path)
    path.write_bytes(DIGITS.read_bytes() + b"\0")
    with pytest.raises(tflgpu.ModelError, match="changed"):
        model.labels  # noqa: B018
