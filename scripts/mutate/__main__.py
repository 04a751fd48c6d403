"""Mutation testing: ``python -m scripts.mutate [--changed BASE | --count N --seed S]``.

Plants small faults in Python and in templates, one at a time, in a copy of the repository, and runs the tests that use
the changed line, the fastest ones first. Prints each mutant that no test sees as a diff. A survivor is a test that is
missing, or changes no behaviour: then it is a row of ``equivalents.csv`` with the reason.

``python -m scripts.mutate --record TESTS...`` runs tests with these arguments of pytest, and notes the lines of Python
and of templates that each uses, in files that begin with MAP. Tests of a line that none of them uses are chosen by the
names of packages and modules. ``--seconds`` is the time for the tests of a mutant.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.mutate import python_rules, template_rules
from scripts.mutate.mutant import ROOT, Mutant, known_equivalents
from scripts.mutate.tests_of import Map, tests_by_name
from scripts.mutate.trial import Copy

MAP = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "tflgpu-mutate", "map")
STAGES = ("frontend", "ops", "graph", "passes", "kernels", "plan", "codegen", "runtime")
FOLDERS = (*(f"tflgpu/{stage}" for stage in STAGES), "templates")


def mutants(files: Iterable[str]) -> Iterator[Mutant]:
    """All mutants of files, but for those that are known to change no behaviour."""
    equivalents = known_equivalents()
    for file in files:
        source = (ROOT / file).read_text()
        rules = python_rules if file.endswith(".py") else template_rules
        for mutant in rules.mutants_of(file, source):
            if (file, *mutant.changed(source)) not in equivalents:
                yield mutant


def files_in(folders: Iterable[str]) -> list[str]:
    """The modules and templates below folders."""
    names = subprocess.check_output(["git", "ls-files", *folders], cwd=ROOT, text=True).splitlines()
    return [name for name in names if name.endswith((".py", ".cl.j2"))]


def changed_lines(base: str) -> dict[str, set[int]]:
    """The lines of the packages and templates that differ from a commit."""
    lines: dict[str, set[int]] = {}
    command = ["git", "diff", "-U0", base, "--", "tflgpu", "templates"]
    for line in subprocess.check_output(command, cwd=ROOT, text=True).splitlines():
        if line.startswith("+++ "):
            current = lines.setdefault(line.removeprefix("+++ b/"), set())
        elif found := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            begin = int(found[1])
            current.update(range(begin, begin + int(found[2] or 1)))
    return {file: found for file, found in lines.items() if file.endswith((".py", ".cl.j2"))}


def drawn(options: argparse.Namespace) -> list[Mutant]:
    """The mutants to try: of what a change touches, or of all files."""
    if options.changed:
        lines = changed_lines(options.changed)
        every = [m for m in mutants(lines) if m.line((ROOT / m.file).read_text()) in lines[m.file]]
    else:
        every = list(mutants(files_in(options.folders)))
    return random.Random(options.seed).sample(every, min(options.count, len(every)))


def record(tests: list[str]) -> int:
    """Run tests, and note what each of them uses."""
    MAP.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "scripts.mutate.recorder", *tests]
    return subprocess.call(command, cwd=ROOT, env=os.environ | {"TFLGPU_MUTATE_MAP": str(MAP), "PYTHONPATH": str(ROOT)})


def main(options: argparse.Namespace) -> int:
    """Try the mutants. The exit code is 1 if any survived."""
    if options.record:
        return record(options.record)
    known, counts, chosen, seeing = Map(MAP), Counter[str](), drawn(options), set[str]()
    with Copy() as copy:
        copy.prepare()
        for number, mutant in enumerate(chosen, 1):
            source = copy.source(mutant.file)
            recorded = known.tests_of(mutant, source, options.seconds / 2)
            tests = [*recorded, "--all"] if recorded else tests_by_name(mutant)
            outcome = copy.try_out(mutant, tests, options.seconds)
            counts[outcome.kind] += 1
            seeing.add(outcome.by)
            place = f"{mutant.file}:{mutant.line(source)}"
            print(
                f"{number} {outcome.kind:10} {outcome.seconds:5.0f} s  {place} ({mutant.rule}) {outcome.by}", flush=True
            )
            if outcome.kind in ("survived", "untested"):
                print(mutant.diff(source), flush=True)
        for test in copy.failing([test for test in seeing if "::" in test]):
            print(f"{test} fails without a mutant, too")
    print(", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
    return int(counts["survived"] + counts["untested"] > 0)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.mutate", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--changed", metavar="BASE", help="mutants of the lines that differ from this commit")
    parser.add_argument("--count", type=int, default=100, help="mutants at most")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--seconds", type=float, default=60, help="processor time for the tests of each")
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="where to draw from without --changed")
    parser.add_argument("--record", nargs=argparse.REMAINDER, metavar="TESTS", help="arguments of pytest")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(parse()))
