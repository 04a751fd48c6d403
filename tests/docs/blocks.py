"""The blocks of code on a page, and what of their output can be the same on every machine.

A line before a block says what its text cannot: ``<!-- not run: REASON -->`` for one that cannot run here,
``<!-- output of one machine -->`` for an output that is not compared. ``<!-- before`` begins a comment of Python that
runs there and that readers do not see, such as a stand-in for a camera.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RUN = {"python": "python", "py": "python", "sh": "sh"}  # language of a block -> what runs it

PLAIN = ("", "text")

BLOCK = re.compile(
    r"^(?: *<!-- (?P<mark>not run: .+?|output of one machine) -->\n+)?"
    r"^ *```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```$"
    r"|^<!-- before\n(?P<before>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)

COMMAND = re.compile(r"^(\$ |tflgpu |python |pip |pytest|docker |examples/)", re.MULTILINE)

# The devices of the pages, beside the one of the run.
DEVICES = ("Intel(R) Xeon(R) Processor", "AMD EPYC")

# Times, sizes, rates, and kernels, of which a CPU has the more the narrower its registers are.
MEASURED = re.compile(r"[\d.,]+(?= ?(kernels|s|ms|µs|us|B|kB|MB|GB|KiB|MiB|GiB|GB/s|GFLOP/s|%|x)\b)")


@dataclass(frozen=True)
class Block:
    """A block that runs. ``output`` is the text after it, None if there is none or it is of one machine."""

    line: int
    language: str
    code: str
    not_run: str = ""  # the reason
    output: str | None = None


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page that run, those among them that cannot run here, and its invisible ones, in order."""
    text = page.read_text(encoding="utf-8")
    last: Block | None = None
    end = 0  # of the last block
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        adjacent = not text[end : match.start()].strip()
        end = match.end()
        if match["before"] is not None:
            block = Block(line, "python", match["before"])
        elif match["language"] in RUN:
            reason = (match["mark"] or "").removeprefix("not run: ")
            block = Block(line, RUN[match["language"]], textwrap.dedent(match["code"]), reason)
        else:
            if last and adjacent and match["language"] in PLAIN and not match["mark"]:
                last = Block(last.line, last.language, last.code, last.not_run, textwrap.dedent(match["code"]))
            continue
        if last:
            yield last
        last = block
    if last:
        yield last


def commands_without_a_language(page: Path) -> list[str]:
    """Blocks of commands that would never be run, because the page does not say that they are commands."""
    found = (match for match in BLOCK.finditer(page.read_text(encoding="utf-8")) if match["language"] in PLAIN)
    return [match["code"] for match in found if COMMAND.search(match["code"])]


def agrees(written: str, found: str, device: str) -> bool:
    """Whether an output has the words that a page says. A line ``...`` of the page stands for any number of them."""
    pieces = re.split(r"^\.\.\.$", written, flags=re.MULTILINE)
    pattern = "(?:.* )?".join(re.escape(comparable(piece, device)) for piece in pieces)
    return re.fullmatch(pattern, comparable(found, device)) is not None


def comparable(text: str, device: str) -> str:
    """The words of an output, each with a blank behind it, without what differs from machine to machine."""
    for name in (device, *DEVICES):
        text = text.replace(name, "DEVICE")
    text = MEASURED.sub("#", text)
    return "".join(f"{word} " for word in text.split())
