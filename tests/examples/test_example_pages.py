"""The examples' page and docstrings tell the truth about them."""

from __future__ import annotations

import ast
import csv
import io
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from examples import download
from tests.examples.page import COMMANDS, EXAMPLES

PROGRAMS = sorted(name for name in COMMANDS if name.endswith(".py"))


def test_every_program_is_on_the_page() -> None:
    programs = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py") if "def main(" in path.read_text()}
    folders = ("container/", "custom_operator/", "digits/", "four_bit_weights/")
    own_pages = {name for name in programs if name.startswith(folders)}
    assert programs - own_pages == {*PROGRAMS, "download.py"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_docstring_has_the_command_of_the_page(name: str) -> None:
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))
    assert docstring is not None
    assert COMMANDS[name] in " ".join(docstring.split())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_short(name: str) -> None:
    most = 160 if name.startswith("training/") else 100  # that one also writes its model
    assert 40 <= len((EXAMPLES / name).read_text().splitlines()) <= most


def named_files() -> set[str]:
    return {
        word for command in COMMANDS.values() for word in command.split() if re.match("(models|labels|images)/", word)
    }


def test_what_examples_need_can_be_downloaded() -> None:
    with download.SOURCES.open(newline="") as table:
        assert named_files() == {row["file"] for row in csv.DictReader(table)}


def test_downloads_are_the_files_of_the_tests(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table's addresses are answered from the shared folder: its manifests know where each file came from."""
    sources: dict[str, Path] = {}
    for folder in ("models", "labels", "images"):
        with (shared / folder / "MANIFEST.csv").open(newline="") as table:
            for row in csv.DictReader(table):
                address = f"https://{row['source_repository']}/raw/{row['source_commit']}/{row['source_path']}"
                sources[address] = shared / folder / row["file"]

    def answer(url: str, timeout: float) -> io.BytesIO:
        assert urlsplit(url).scheme == "https"
        return io.BytesIO(sources[url].read_bytes())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(download, "urlopen", answer)
    download.main()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == named_files()
    download.main()
    assert capsys.readouterr().out.count("is there\n") == len(named_files())

    shutil.rmtree(tmp_path / "labels")
    monkeypatch.setattr(download, "urlopen", lambda url, timeout: io.BytesIO(b"another file"))
    with pytest.raises(SystemExit, match="has changed: its SHA-256"):
        download.main()
    assert not (tmp_path / "labels").exists()
