"""The commands of ``examples/README.md``, as a reader types them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

ROW = re.compile(r"^\| \[`(.+?)`\].* `((?:python )?examples/.+?)` \|$", re.MULTILINE)

# Example -> its command. The one that trains a model has a page and a test of its own.
COMMANDS = {name: command for name, command in ROW.findall((EXAMPLES / "README.md").read_text()) if name != "digits/"}


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def command_of(example: str) -> list[str]:
    """The words of its command, for this interpreter, which makes an error of every warning but Ray's of itself."""
    words = shlex.split(COMMANDS[example])
    warnings = ("-W", "error", "-W", "ignore::DeprecationWarning:ray.data.context")
    return [sys.executable, *warnings, *words[1:]] if words[0] == "python" else words


def run_example(example: str, folder: Path, *options: str) -> list[str]:
    """Run it in a folder, with further options if need be; the lines that it prints."""
    done = subprocess.run(
        [*command_of(example), *options],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
