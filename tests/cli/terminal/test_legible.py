"""The output of every verb on a terminal of 80 columns and into a pipe.

The texts lie in ``snapshots/``, their numbers and lengths of lines masked where runs differ. After a change that is
meant, ``TFLGPU_WRITE_SNAPSHOTS=1 pytest -n0 --all tests/cli/terminal`` writes them anew; read what git shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import DIGITS, invoke
from tests.quick import RUNTIMES
from tflgpu.cli.console import Listing, console

SNAPSHOTS = Path(__file__).parent / "snapshots"

MODEL = "examples/digits/digits.tflite"

# The same on every machine and in every run.
STABLE = {
    "help": "--help",
    "inspect-help": "inspect --help",
    "inspect": f"inspect {MODEL}",
    "show-model": f"show {MODEL} --stage model",
    "show-graph": f"show {MODEL}",
}

MEASURED = {
    "run": f"run {MODEL} {{image}} --mean 0 --std 255 --top 3",
    "profile": f"profile {MODEL} --runs 1",
    "diff": f"diff {MODEL} --runs 1",
    "precompile-cache": f"precompile-cache {MODEL}",
    "cache-ls": "cache ls",
    "cache-verify": "cache verify",
    "cache-evict": "cache evict --all",
}

# Its names are shortened by as much as the measurements beside them are wide: the snapshot has them whole.
SHORTENED = "profile"


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels, and so the tables, are those of a CPU."""
    if not any(device.platform == RUNTIMES[0] for device in tflgpu.devices()):
        pytest.skip(f"{RUNTIMES[0]} is not installed")
    monkeypatch.setenv("TFLGPU_DEVICE", RUNTIMES[0])
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(DIGITS.parents[1])


@pytest.fixture
def terminal(columns: Callable[[int], None]) -> None:
    columns(80)


def printed(command: str) -> str:
    """The standard output of a command, which must print nothing on stderr."""
    result = invoke(*command.split())
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def check(name: str, text: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("TFLGPU_WRITE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def masked(text: str) -> str:
    """``text`` without what depends on a run or a CPU: numbers, widths of columns, the names of devices and kernels."""
    text = text.replace("cpu_convolution_packed", "cpu_convolution_quads")
    for device in tflgpu.devices():
        text = text.replace(device.name, "DEVICE")
    text = re.sub(r"\b[0-9a-f]{16,}\b", "TOKEN", text)
    text = re.sub(r"(?<![\w.])\d[\d.,]*(e[+-]?\d+)?", "0", text)
    text = re.sub(r"\b0 (bytes|kB|MB|GB)\b", "0 B", re.sub(r"(0 h|0 min|0 days?) ago|now", "now", text))
    return re.sub(r"─+", "─", re.sub(r"^ +", "", re.sub(r" {2,}", "  ", text), flags=re.MULTILINE))


def is_legible(text: str) -> bool:
    return all(len(line) <= 80 for line in text.splitlines()) and "\x1b" not in text


@pytest.mark.parametrize("name", STABLE)
def test_a_text_at_80_columns(name: str, terminal: None) -> None:
    text = printed(STABLE[name])
    assert is_legible(text) or name.startswith("show"), "listings of stages are for grep: their lines are whole"
    check(name, text)


def test_measurements_at_80_columns(
    tmp_path: Path, digit: Path, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order: what one verb leaves in the cache, others list."""
    pytest.importorskip("ai_edge_litert")
    cache = str(tmp_path / "cache")
    monkeypatch.setenv("TFLGPU_CACHE_DIR", cache)
    for name, template in MEASURED.items():
        command = template.format(image=digit)
        text = printed(command)
        assert is_legible(text) or name == "cache-evict", "paths are whole"
        assert all(line == line.rstrip() for line in text.splitlines())
        if name == SHORTENED:
            with monkeypatch.context() as pipe:
                pipe.setattr(console, "_width", None)
                text = printed(command)
        text = masked(text.replace(cache, "CACHE"))
        check(name, text.partition("top by")[0])  # which kernels come first is another matter each time


@pytest.mark.parametrize(
    "command",
    [
        "devices",
        "demo",
        pytest.param(
            f"benchmark {MODEL} --num-runs 1 --min-secs 0 --warmup-min-secs 0 --litert --profile",
            marks=pytest.mark.full("it starts the model in two processes"),
        ),
    ],
)
def test_tables_of_a_machine_at_80_columns(command: str, terminal: None) -> None:
    pytest.importorskip("ai_edge_litert")
    tables = re.sub(r"^(Inference timings in us|Memory footprint delta).*$", "", printed(command), flags=re.MULTILINE)
    assert is_legible(tables), "the lines of TFLite's benchmark_model are whole, for programs that read them"


def test_a_pipe_gets_long_names_and_sentences_in_one_line() -> None:
    reason = "a reason why an operator cannot run, far longer than the eighty columns of a terminal, as some are"
    listing = Listing("name", "why", prose=("why",))
    listing.add_row("tensor/" * 30, reason)
    with console.capture() as capture:
        console.print(listing)
    assert capture.get().splitlines()[2] == f"{'tensor/' * 30}  {reason}"


def test_a_narrow_terminal_shortens_names_before_it_wraps_and_numbers_never(terminal: None) -> None:
    listing = Listing("name", *(f"number {i}" for i in range(6)), right=tuple(f"number {i}" for i in range(6)))
    listing.add_row("MobilenetV1/MobilenetV1/Conv2d_1_pointwise/Relu6", *["123456.789"] * 6)
    with console.capture() as capture:
        console.print(listing)
    (row,) = capture.get().splitlines()[2:]
    assert row.split() == ["Mobil…wise/Relu6", *["123456.789"] * 6]
