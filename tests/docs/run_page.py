"""Run the blocks of one page in order, in the working directory: ``python -m tests.docs.run_page PAGE``.

Blocks of Python share their names, as in a session; blocks of sh share files only. Exit code 1, with the line in the
page, for a block that fails or prints something else than the page says.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import shlex
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import tflgpu
from tests.docs.blocks import Block, agrees, blocks
from tflgpu.cli import app

ROOT = Path(__file__).parents[2]

# Packages are installed and the tests run already: here it is enough that both are there.
SHELL = f"""
pip() {{ :; }}
pytest() {{ for word; do case $word in tests/*) test -e {ROOT}/$word ;; esac; done; }}
set -euo pipefail
"""

SHELL_ONLY = frozenset("*?$|<>;&`~")


def verbs(code: str) -> list[list[str]]:
    """The words of each command, if they are commands of tflgpu and nothing that only a shell understands."""
    lines = [line for line in code.splitlines() if shlex.split(line, comments=True)]
    quoted = [shlex.split(line, comments=True, posix=False) for line in lines]  # with their quotation marks
    plain = all(words[0] == "tflgpu" and not any(map(needs_shell, words)) for words in quoted)
    return [shlex.split(line, comments=True) for line in lines] if plain else []


def needs_shell(word: str) -> bool:
    """Whether a word, with its quotation marks if it has any, means something else than itself to a shell."""
    special = {'"': set("$`\\"), "'": set[str]()}.get(word[0], SHELL_ONLY)
    return not special.isdisjoint(word)


def output(block: Block, names: dict[str, Any]) -> str:
    """The output of the block. Raises RuntimeError for a command that fails, and whatever Python raises."""
    if block.language == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.code, "the page", "exec"), names)
        return printed.getvalue()
    if commands := verbs(block.code):  # here, because a process of its own takes most of a second
        results = [CliRunner().invoke(app, words[1:]) for words in commands]
        stdout, code = "".join(r.stdout for r in results), max(r.exit_code for r in results)
    else:
        done = subprocess.run(["bash", "-c", SHELL + block.code], stdout=subprocess.PIPE, text=True, timeout=120)
        stdout, code = done.stdout, done.returncode
    if code:
        raise RuntimeError(f"exit code {code}; it printed:\n{stdout}")
    return stdout


def main(page: Path) -> int:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.not_run:
            continue
        try:
            found = output(block, names)
        except Exception:
            traceback.print_exc()
            print(f"{page}:{block.line}: this block fails:\n{block.code}", file=sys.stderr)
            return 1
        if block.output is not None and not agrees(block.output, found, tflgpu.devices()[0].name):
            difference = difflib.unified_diff(
                block.output.splitlines(), found.splitlines(), "the page", "this run", lineterm=""
            )
            print(f"{page}:{block.line}: this block prints something else:", *difference, sep="\n", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
