"""Compiled templates are kept where Python keeps compiled modules, and are never a fault."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import IO

import pytest
from jinja2.bccache import Bucket

from tflgpu.codegen.environment import environment

NAME = "access/storage.cl.j2"


def rendered() -> str:
    """By an environment that has compiled nothing yet."""
    return environment.__wrapped__().get_template(NAME).render()


def test_compiled_templates_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process does not compile; a damaged file is compiled again, and so is another template's."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = rendered()
    (kept,) = tmp_path.rglob("template_*")
    whole = kept.read_bytes()
    for damaged in (b"", whole[:4], whole[:-20], whole[:20] + b"x" + whole[21:], bytes(len(whole))):
        kept.write_bytes(damaged)
        assert rendered() == text
    assert kept.read_bytes() == whole
    compiled = []
    monkeypatch.setattr("jinja2.Environment.compile", lambda *_: compiled.append(1))
    assert rendered() == text
    assert not compiled


def test_nothing_is_kept_where_python_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a folder that is none."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = rendered()
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert rendered() == text


def test_a_full_disk_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_a_part(_: Bucket, file: IO[bytes]) -> None:
        file.write(b"part")
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(Bucket, "write_bytecode", write_a_part)
    assert rendered()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
