"""``python -O`` drops assert statements, and changes nothing that a file decides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.mutants import compile_without_device, mutants

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


def outcomes(count: int) -> list[str]:
    """The outcomes of damaged models: the error, or ``""``."""
    found = []
    for mutant in mutants(DIGITS.read_bytes(), seed=3, count=count):
        try:
            compile_without_device(mutant)
            found.append("")
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def test_damaged_models_have_the_same_errors_without_asserts() -> None:
    program = f"import json, {__name__} as t; assert False; print(json.dumps(t.outcomes(24)))"
    done = subprocess.run([sys.executable, "-O", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    expected = outcomes(24)
    assert json.loads(done.stdout) == expected
    assert "" in expected and len({*expected}) > 3
