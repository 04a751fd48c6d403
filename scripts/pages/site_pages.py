"""What the site has besides docs/: pages that lie beside what they describe, the commands, and files behind links.

MkDocs calls this module (``hooks`` in mkdocs.yml). Links in a page are relative to the page in the repository, so that
they also lead somewhere on a code host; here they become links of the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import normpath, relpath
from pathlib import Path
from posixpath import dirname

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.pages import commands

ROOT = Path(__file__).parents[2]

# Page of the repository -> page of the site.
JOINED = {
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
    "cache_format/README.md": "internals/cache-format.md",
    "examples/README.md": "examples/index.md",
    "examples/container/README.md": "examples/container.md",
    "examples/digits/README.md": "examples/digits.md",
    "examples/custom_operator/README.md": "examples/custom-operator.md",
    "README.md": "index.md",  # links to it only: the site has a front page of its own
}
ORIGIN = {place: path for path, place in JOINED.items() if path != "README.md"}

COMMANDS = "reference/commands.md"

FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of ``JOINED``, the commands, and every file that a page links to."""
    files.append(File.generated(config, COMMANDS, content=commands.page()))
    for place, path in ORIGIN.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for page in list(files.documentation_pages()):
        for path in _targets(page):
            place = _place(path)
            if place and not files.get_file_from_path(place) and (ROOT / path).is_file():
                files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links of the site."""

    def site_link(match: re.Match[str]) -> str:
        place = _place(_repository_path(page.file, match[0]))
        return relpath(place, dirname(page.file.src_uri) or ".") if place else match[0]

    parts = re.split(f"({FENCED.pattern})", markdown, flags=FENCED.flags)
    return "".join(part if FENCED.match(part) else LINK.sub(site_link, part) for part in parts)


def _targets(page: File) -> Iterator[str]:
    for link in LINK.findall(FENCED.sub("", page.content_string)):
        yield _repository_path(page, link)


def _repository_path(page: File, link: str) -> str:
    """What a link of a page leads to, relative to the repository; addresses as they are."""
    if ":" in link:
        return link
    source = ORIGIN.get(page.src_uri, f"docs/{page.src_uri}")
    return normpath(f"{dirname(source)}/{link}" if dirname(source) else link)


def _place(path: str) -> str | None:
    """Where the site has a file or folder of the repository; None if it has not."""
    path = f"{path}/README.md" if (ROOT / path).is_dir() else path
    if not (ROOT / path).exists():
        return None
    return JOINED.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}")
