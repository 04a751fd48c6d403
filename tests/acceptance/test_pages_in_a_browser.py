"""The pages of real models in headless Chromium: legible on desks and phones, and silent on the network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.command import succeed
from tests.page.hostile import HOSTILE, hostile_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.full(why="a browser is heavy, and so are real models")

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)

MODELS = {
    "deeplab": "deeplabv3_257_mv_gpu.tflite",
    "yolox": "yolox_nano_float16_quantize.tflite",
    "fallback": "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite",
    "hostile": "",
}
SIZES = {"desk": (1280, 900), "phone": (390, 844)}

WINDOWS = [
    *product(("deeplab", "yolox", "fallback"), SIZES, ("light", "dark")),
    ("hostile", "desk", "light"),
]

SMALLEST = 8  # pixels of a line of text
CONTRAST = 4.5  # between a text and its ground, as WCAG 2 asks for

# Every text that is shown, with the height of a line of it and its contrast to what is behind: as WCAG 2 counts it,
# over the nearest background, or over the shape that a text of a drawing belongs to.
TEXTS = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = numbers(colour).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const style = getComputedStyle(node);
      const shape = node.matches && node.matches("g") && node.querySelector(":scope > rect");
      if (shape) return getComputedStyle(shape).fill;
      const alpha = numbers(style.backgroundColor)[3];
      if (alpha === undefined || alpha > 0.9) return style.backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walker.nextNode()); ) {
    const element = text.parentElement;
    if (!text.data.trim() || element.closest("script, style, title") || !element.getClientRects().length) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    const style = getComputedStyle(element);
    const svg = element.closest("svg");
    const scale = svg ? svg.getScreenCTM().a : 1;
    const colour = svg ? style.fill : style.color;
    const [low, high] = [luminance(colour), luminance(ground(element))].sort((a, b) => a - b);
    found.push([text.data.trim().slice(0, 40), parseFloat(style.fontSize) * scale, (high + 0.05) / (low + 0.05)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("a browser is no part of what tflgpu needs; `apt-get install chromium` brings one")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages that were written so far, by name of the model."""
    return {"folder": tmp_path_factory.mktemp("pages")}


def page_of(name: str, pages: dict[str, Path], shared: Path) -> Path:
    if name not in pages:
        pages[name] = pages["folder"] / f"{name}.html"
        model = shared / "models" / MODELS[name] if MODELS[name] else hostile_model(pages["folder"])
        succeed("profile", model, "--runs", 1, "--html", pages[name], "--cache", "off")
    return pages[name]


@contextmanager
def visit(browser: Browser, file: Path, size: str, theme: Any = "light") -> Iterator[Page]:
    """The page in a window. In the end nothing was said or asked for, and nothing sticks out of the window."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: faults.append(f"request: {request.url}"))
    page.goto(file.as_uri())
    yield page
    assert faults == [f"request: {file.as_uri()}"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.parametrize(("name", "size", "theme"), WINDOWS)
def test_a_page_is_legible_and_silent(
    name: str, size: str, theme: str, browser: Browser, pages: dict[str, Path], shared: Path
) -> None:
    """In both views of the graph. A screenshot of the whole page, as a file, is larger than one of blank paper."""
    with visit(browser, page_of(name, pages, shared), size, theme) as page:
        for view in page.locator(".switch button").all():
            view.click()
            texts = page.evaluate(TEXTS)
            assert len(texts) > 40
            assert [(text, height) for text, height, _ in texts if height < SMALLEST] == []
            assert [(text, contrast) for text, _, contrast in texts if contrast < CONTRAST] == []
        assert len(page.screenshot(full_page=True)) > 50_000


def test_a_kernel_that_is_chosen_is_shown_everywhere(browser: Browser, pages: dict[str, Path], shared: Path) -> None:
    with visit(browser, page_of("deeplab", pages, shared), "desk") as page:
        page.locator(".slowest button").first.click()
        number = page.locator(".slowest button.on").get_attribute("data-k")
        assert page.locator("#details h3 .swatch").inner_text() == number
        assert page.locator(f".lines .mark.on[data-k='{number}']").count() == 1
        assert page.locator(f".kernels tr.on[data-k='{number}']").count() == 1
        assert page.locator("#memory svg.wide .tensor.on").count() > 0
        page.locator(".lines .mark[data-k='3']").click()
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.dataset.k") == "4"
        assert "4" in page.locator("#details h3").inner_text()


def test_details_come_up_from_below_on_a_phone(browser: Browser, pages: dict[str, Path], shared: Path) -> None:
    with visit(browser, page_of("deeplab", pages, shared), "phone") as page:
        assert not page.locator("#details").is_visible()
        page.locator(".lines .mark").first.click()
        assert page.locator("#details").is_visible()
        page.locator("#details .close").click()
        page.wait_for_function("getComputedStyle(document.getElementById('details')).visibility === 'hidden'")


def test_the_table_sorts_and_filters(browser: Browser, pages: dict[str, Path], shared: Path) -> None:
    with visit(browser, page_of("deeplab", pages, shared), "desk") as page:
        page.locator(".kernels th button", has_text="time").click()
        times = [float(cell.get_attribute("data-v") or 0) for cell in page.locator(".kernels td:nth-child(4)").all()]
        assert times == sorted(times, reverse=True)
        page.locator("#filter").fill("resize")
        shown = page.locator(".kernels tbody tr:visible").all_inner_texts()
        assert len(shown) == 2 and all("RESIZE_BILINEAR" in row for row in shown)


def test_the_switch_overrules_the_system_s_colours(browser: Browser, pages: dict[str, Path], shared: Path) -> None:
    def paper() -> str:
        colour: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        return colour

    with visit(browser, page_of("deeplab", pages, shared), "desk", "dark") as page:
        dark = paper()
        page.locator("#theme").click()
        assert page.locator("#theme").inner_text() == "○ light" and paper() != dark
        page.locator("#theme").click()
        assert page.locator("#theme").inner_text() == "● dark" and paper() == dark


def test_a_hostile_name_is_shown_as_it_is(browser: Browser, pages: dict[str, Path], shared: Path) -> None:
    with visit(browser, page_of("hostile", pages, shared), "desk") as page:
        page.locator(".lines .mark").first.click()
        assert HOSTILE in page.locator("#details").inner_text()
        assert "onerror=alert(5)" in page.locator("h1").inner_text()
        assert page.evaluate("document.images.length + document.scripts.length") == 2
