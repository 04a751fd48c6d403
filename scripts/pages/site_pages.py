"""Pages of the site besides docs/: those that lie beside what they describe, the commands, and files behind links.

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
    "SECURITY.md": "internals/security.md",
    "CODE_OF_CONDUCT.md": "internals/conduct.md",
    "THIRD_PARTY.md": "internals/third-party.md",
    "cache_format/README.md": "internals/cache-format.md",
    "examples/README.md": "examples/index.md",
    "examples/container/README.md": "examples/container.md",
    "examples/digits/README.md": "examples/digits.md",
    "examples/custom_operator/README.md": "examples/custom-operator.md",
    "examples/four_bit_weights/README.md": "examples/four-bit-weights.md",
    "README.md": "index.md",  # links to it only: the site has a front page of its own
}
ORIGIN = {place: path for path, place in JOINED.items() if path != "README.md"}

COMMANDS = "reference/commands.md"

FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([\w/.-]+\.md)?(?P<rest>[^\]\n]*)\]\((?P<target>[^)\s#]+)")
TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of ``JOINED``, the commands, and every file that a page links to."""
    files.append(File.generated(config, COMMANDS, content=commands.page()))
    for site_place, origin in ORIGIN.items():
        files.append(File.generated(config, site_place, abs_src_path=str(ROOT / origin)))
    for page in list(files.documentation_pages()):
        for path in _targets(page):
            place = _place(path)
            if place and not files.get_file_from_path(place) and (ROOT / path).is_file():
                files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links of the site. A link that is called by its file has the title of the page instead."""

    def site_link(match: re.Match[str]) -> str:
        path = _repository_path(page.file, match["target"])
        place = _place(path)
        if not place:
            return match[0]
        text = _title(path) if match[1] and not match["rest"] else f"{match[1] or ''}{match['rest']}"
        return f"[{text}]({relpath(place, dirname(page.file.src_uri) or '.')}"

    parts = re.split(f"({FENCED.pattern})", markdown, flags=FENCED.flags)
    return "".join(part if FENCED.match(part) else LINK.sub(site_link, part) for part in parts)


def _title(path: str) -> str:
    """The first heading of a page of the repository."""
    found = TITLE.search((ROOT / path).read_text(encoding="utf-8"))
    return found[1] if found else path


def _targets(page: File) -> Iterator[str]:
    for link in LINK.finditer(FENCED.sub("", page.content_string)):
        yield _repository_path(page, link["target"])


def _repository_path(page: File, link: str) -> str:
    """The file that a link of a page leads to, relative to the repository; addresses as they are."""
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
