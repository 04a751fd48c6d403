"""The documentation: its links and paths lead somewhere, its Python parses, and its generated pages are current."""

from __future__ import annotations

import ast
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

import tflgpu
from scripts.pages import draw_road, make_operators, make_options, make_walk

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "cache_format/*.md", "examples/**/*.md") for path in ROOT.glob(pattern)
)
CHANGELOG = ROOT / "CHANGELOG.md"

BUILT = ROOT / "docs" / "reference" / "commands.md"  # made when the site is built

# Folders of the repository, by which a text in backticks is known as a path of it.
FOLDERS = tuple(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))))

ENTRY_POINTS = {"tflgpu.operators"}  # names of groups, which are no modules

MAX_TERMS = 40  # in the glossary
TWO_SCREENS = 105  # lines

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"""(?<=\]\()[^)\s]+(?=\))|(?<=\bsrc=")[^"]+""")
CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def text_of(page: Path) -> str:
    """The page; of the changelog only what is not released yet, since files may be renamed after a release."""
    text = page.read_text(encoding="utf-8")
    return text.split("\n## ")[1] if page == CHANGELOG else text


def prose_of(page: Path) -> str:
    """The page without its blocks of code."""
    return FENCE.sub("", text_of(page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", title) for title in HEADING.findall(prose_of(page)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def repository_paths(page: Path) -> Iterator[str]:
    """The texts in backticks that name a file or folder of the repository."""
    for code in CODE.findall(prose_of(page)):
        if re.fullmatch(r"[\w.*/\-]+", code) and code.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
            yield code


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose_of(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if target == BUILT:
            continue
        assert target.exists(), f"{name(page)} links to {path}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} links to {link}, which has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_exist(page: Path) -> None:
    missing = [path for path in repository_paths(page) if not any(ROOT.glob(path.rstrip("/")))]
    assert missing == [], f"{name(page)} names paths that are not there"


def test_pages_that_the_code_names_exist() -> None:
    """In messages, help and comments."""
    code = [path for folder in ("tflgpu", "tests", "scripts", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    named = {page for path in code for page in re.findall(r"\bdocs/[\w/-]+\.\w+", path.read_text(encoding="utf-8"))}
    assert {page for page in named if not (ROOT / page).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_modules_exist(page: Path) -> None:
    """Dotted names of tflgpu in backticks: a module, or a name of one."""
    dotted = {code for code in CODE.findall(prose_of(page)) if re.fullmatch(r"tflgpu(\.[a-z_]+)+(\.[A-Z]\w+)?", code)}
    missing = {code for code in dotted - ENTRY_POINTS if not resolves(code)}
    assert missing == set(), f"{name(page)} names modules that are not there"


def resolves(dotted: str) -> bool:
    with suppress(ModuleNotFoundError):  # a name in a module is no module of a package
        if find_spec(dotted):  # not imported: it may need an extra
            return True
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_parses(page: Path) -> None:
    for _, language, code in FENCE.findall(text_of(page)):
        if language in ("python", "py"):
            ast.parse(textwrap.dedent(code), name(page))


def test_every_page_is_in_the_navigation() -> None:
    navigation = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    assert pages - set(navigation) == set(), "give them a line in the `nav` of mkdocs.yml"


def test_the_readme_is_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= TWO_SCREENS, "docs/ holds the rest"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "guide" / "from-tflite.md"], ids=name)
def test_the_number_of_operators(page: Path) -> None:
    (count,) = re.findall(r"^(\d+) operators run", make_operators.page(), re.MULTILINE)
    assert re.findall(r"\b(\d{3}) (?:operators|of them)\b", page.read_text(encoding="utf-8")) == [count]


def test_the_drawing_is_current() -> None:
    assert draw_road.PICTURE.read_text(encoding="utf-8") == draw_road.draw(), "run `python -m scripts.pages.draw_road`"


def test_the_walk_is_current() -> None:
    assert make_walk.PAGE.read_text(encoding="utf-8") == make_walk.page(), "run `python -m scripts.pages.make_walk`"


def test_the_operators_are_current() -> None:
    written, current = make_operators.PAGE.read_text(encoding="utf-8"), make_operators.page()
    assert written == current, "run `python -m scripts.pages.make_operators`"


def test_the_options_are_current() -> None:
    written, current = make_options.PAGE.read_text(encoding="utf-8"), make_options.page()
    assert written == current, "run `python -m scripts.pages.make_options`"


def glossary_rows() -> list[tuple[str, str]]:
    """The terms of the glossary, each with its last column, the names in the code."""
    rows = re.findall(
        r"^\| \*\*(.+?)\*\* .*\| (.*?) \|$",
        (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return [(term, names) for term, names in rows]


def test_the_glossary_is_short() -> None:
    terms = [term for term, _ in glossary_rows()]
    assert 0 < len(terms) <= MAX_TERMS
    assert len(terms) == len(set(terms))


def test_the_glossary_names_what_is_in_the_code() -> None:
    code = [*(ROOT / "tflgpu").rglob("*.py"), *(ROOT / "templates").rglob("*.j2")]
    known = {word for path in code for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    named = {n for _, names in glossary_rows() for n in CODE.findall(names)}
    assert named - known == set()


def test_the_glossary_has_every_public_name() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    assert set(tflgpu.__all__) - set(CODE.findall(text)) == set()
