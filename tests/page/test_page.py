"""The file: whole without a browser, and without anything that a model's names could do in one."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import MODEL, fail, succeed, unsupported_model
from tests.page.hostile import HOSTILE, hostile_model
from tests.support.models import WITHOUT_KERNEL, Builder

# Elements that would load or run something; the page has its own style, and two scripts, of which one is data.
ACTIVE = {"iframe", "img", "image", "object", "embed", "foreignobject", "base", "form", "audio", "video", "animate"}


class Reader(HTMLParser):
    """The tags of a page, their attributes, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def written(model: Path, folder: Path, *more: object) -> str:
    page = folder / "page.html"
    succeed("profile", model, "--runs", 1, "--html", page, "--cache", "off", *more)
    return page.read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, dict[str, object]]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    parsed: dict[str, dict[str, object]] = json.loads(text)
    return parsed


def test_the_page_has_every_kernel_and_every_part(tmp_path: Path) -> None:
    page = written(MODEL, tmp_path)
    reader = Reader(page)
    kernels = data_of(page)
    assert kernels and all(f'<tr data-k="{number}">' in page for number in kernels)
    assert reader.tags.count("section") == 6 and reader.tags.count("h1") == 1
    assert {"digits.tflite", "CONV_2D"} <= set(reader.text)


def test_products_in_half_have_a_ceiling(half_device: tflgpu.Device, tmp_path: Path) -> None:
    page = written(MODEL, tmp_path, "--precision", "fp16_fast", "--device", half_device.index)
    assert "multiply-add" in page


def test_a_tolerance_has_no_page(tmp_path: Path) -> None:
    """The page plans anew, and would show other kernels than those that ran."""
    assert "leave out --html or --tolerance" in fail(
        "profile", MODEL, "--tolerance", "0.01", "--html", tmp_path / "page.html"
    )


def test_nothing_is_loaded(tmp_path: Path) -> None:
    page = written(MODEL, tmp_path)
    sources = [value for name, value in Reader(page).attributes if name in ("src", "srcset", "href", "xlink:href")]
    assert all(value == "data:," or (value or "").startswith("#") for value in sources)
    assert not re.search(r"url\(|@import|https?://", page)
    assert "default-src 'none'" in page


def test_hostile_names_are_text(tmp_path: Path) -> None:
    page = written(hostile_model(tmp_path), tmp_path)
    reader = Reader(page)
    assert ACTIVE.isdisjoint(reader.tags)
    assert reader.tags.count("script") == 2
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert not [value for _, value in reader.attributes if (value or "").lower().startswith("javascript:")]
    assert any(HOSTILE in text for text in reader.text)
    assert json.dumps(HOSTILE)[1:-1] in json.dumps(data_of(page))
    assert "{{ 7 * 7 }}" in page and "\n49" not in page


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_operators_on_the_cpu_have_their_reasons(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    model = tmp_path / "model.tflite"
    unsupported_model(model)
    page = written(model, tmp_path)
    assert f"{WITHOUT_KERNEL} has no kernel for the device" in page
    assert "<b>16 bytes</b> in 1 tensor from the CPU to the device" in page


def test_a_model_without_kernels_has_a_page(tmp_path: Path) -> None:
    builder = Builder()
    x = builder.input((1, 4), name="x")
    y = builder.add("RESHAPE", [x, builder.ints([4])], (4,), name="y")
    model = tmp_path / "model.tflite"
    model.write_bytes(builder.finish([y]))
    page = written(model, tmp_path)
    assert "No kernel of this model multiplies" in page
