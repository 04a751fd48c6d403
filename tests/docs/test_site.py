"""The documentation as a site: it builds without a warning, every link leads somewhere, nothing is loaded from afar."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]

# Addresses that a browser loads by itself. Links that a reader follows do not count.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*?\bsrc(?:set)?="(https?:[^"]+)"|@import[^;]*https?:|url\(["']?https?:"""
)


LINK = re.compile(r"""<(?:a|link|script|img)\b[^>]*?\b(?:href|src)=["']?([^"'\s>]+)""")
ANCHOR = re.compile(r"""\b(?:id|name)=["']?([^"'\s>]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def targets(page: Path, text: str, site: Path) -> Iterator[tuple[str, Path, str]]:
    """The links of a built page to others and to its own anchors: as written, the file, the anchor."""
    for link in LINK.findall(text):
        address = urlsplit(html.unescape(link))
        if not address.scheme and not address.netloc:
            path = unquote(address.path)
            file = (site / path.lstrip("/") if path.startswith("/") else page.parent / path) if path else page
            yield link, (file / "index.html" if file.is_dir() else file).resolve(), unquote(address.fragment)


@pytest.mark.full(why="a build takes several seconds")
def test_every_link_leads_somewhere(site: Path) -> None:
    """In what a browser gets: menus, generated pages and the API included."""
    texts = {page.resolve(): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(ANCHOR.findall(text)) for page, text in texts.items()}
    broken = [
        f"{page.relative_to(site.resolve())}: {link}"
        for page, text in texts.items()
        for link, file, anchor in targets(page, text, site.resolve())
        if not file.is_file() or (anchor and file in anchors and anchor not in anchors[file])
    ]
    assert broken == []


@pytest.mark.full(why="a build takes several seconds")
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 15
    assert {str(page.relative_to(site)): found[0] for page in pages if (found := LOADED.search(page.read_text()))} == {}


# Signatures of which a part is out of sight, and how many there are.
CUT_OFF = """() => {
  const all = [...document.querySelectorAll(".doc-signature pre > code")];
  return [all.filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText), all.length];
}"""


@pytest.mark.full(why="a build takes several seconds")
def test_signatures_are_shown_whole(site: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("a browser is no part of what tflgpu needs; `apt-get install chromium` brings one")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.goto((site / "reference" / "api" / "index.html").as_uri())
            cut_off, count = page.evaluate(CUT_OFF)
            assert count > 50 and cut_off == [], f"at {width} pixels"
        browser.close()
