"""Plans do not depend on the order of imports and of elements of sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Imports all modules in an order that was drawn, and prints digests of a model's plans.
PLANNING = """
import sys
from importlib import import_module
from pathlib import Path
from random import Random

seed, model = int(sys.argv[1]), Path(sys.argv[2]).read_bytes()
names = sorted(".".join(path.with_suffix("").parts) for path in Path("tflgpu").rglob("*.py") if path.stem[:2] != "__")
Random(seed).shuffle(names)
for name in names:
    import_module(name)
from tests.digests import TARGETS, digests
from tflgpu.compiler import compile_model
from tflgpu.options import Options
from tflgpu.target import Target
for target, executor, storage in ("cpu", "claiming", "float"), ("nvidia", "persistent", "half"):
    print(*digests(*compile_model(model, Options(), Target(**TARGETS[target], executor=executor, storage=storage))))
"""


def test_plans_depend_on_no_order_of_imports_and_sets(shared: Path) -> None:
    root, model = Path(__file__).parents[2], shared / "models" / "selfie_segmenter.tflite"
    found = set()
    for seed in range(2):
        environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)}
        command = [sys.executable, "-c", PLANNING, str(seed), str(model)]
        found.add(subprocess.check_output(command, cwd=root, env=environment, text=True))
    assert len(found) == 1 and all(found)
