"""The quick suite is thinner than ``pytest --all``, but leaves no part of tflgpu out."""

from __future__ import annotations

import ast
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.conftest import CASES
from tests.ops.axes import FAMILIES, PRECISIONS
from tests.ops.table import ROWS
from tests.quick import covering
from tests.support.templates import NOT_PORTABLE
from tflgpu.cli import VERBS
from tflgpu.ops import REGISTRY

ROOT = Path(__file__).parents[2]


def collected(*arguments: str) -> frozenset[str]:
    """The cases that pytest would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return frozenset(line for line in done.stdout.splitlines() if "::" in line)


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> tuple[frozenset[str], frozenset[str]]:
    """All, and those of the quick suite."""
    return request.config.stash.get(CASES, None) or (collected("--all"), collected())


@pytest.fixture
def everything(cases: tuple[frozenset[str], frozenset[str]]) -> frozenset[str]:
    return cases[0]


@pytest.fixture
def quick(cases: tuple[frozenset[str], frozenset[str]]) -> frozenset[str]:
    return cases[1]


def functions(cases: frozenset[str]) -> set[str]:
    return {case.partition("[")[0] for case in cases}


def literals(*paths: Path) -> set[str]:
    """The texts of the modules' literals."""
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text())))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_test_has_a_case(quick: frozenset[str], everything: frozenset[str]) -> None:
    """Also those of executors, verbs and faults. Some that take several seconds may be full."""
    assert quick < everything
    left_out = functions(everything) - functions(quick)
    may_be_full = (
        "tests/acceptance/",
        "tests/architecture/test_benchmarks.py",
        "tests/architecture/test_package.py",
        "tests/batch/test_ray.py",
        "tests/batch/test_serving.py",
        "tests/docs/",
        "tests/drivers/",
        "tests/examples/",
        "tests/kernels/gpu/",
        "tests/kernels/test_emulated_kernels.py::test_emulated_persistent_kernel_gives_the_right_result",
        "tests/ops/test_new_operator.py",
        "tests/ops/test_plugins.py::test_another_version_of_the_package_is_a_miss",
        "tests/safety/test_guarded_process.py::test_a_partition_that_memory_does_not_hold_is_unsupported",
    )
    assert {function for function in left_out if not function.startswith(may_be_full)} == set()


def test_cases_have_each_pair_of_values() -> None:
    cases = [
        frozenset(combinations(enumerate(values), 2)) for values in product(range(7), ("intel", "pocl"), range(2), "ab")
    ]
    taken = covering(cases)
    assert frozenset().union(*(cases[n] for n in taken)) == frozenset().union(*cases)
    assert len(taken) <= 16, "14 are the least"
    assert taken == sorted(taken)
    assert covering([frozenset(name) for name in "abc"]) == [0, 1, 2]


def test_every_row_runs(quick: frozenset[str]) -> None:
    name = "tests/ops/test_ops.py::test_rows_alone_and_fused[intel-"
    batches = [case.removeprefix(name).removesuffix("]").split("-") for case in quick if case.startswith(name)]
    for kind in (*FAMILIES, *PRECISIONS):
        run = {row for rows, *kinds in batches if kind in kinds for row in rows.split("+")}
        assert run == {row.name for row in ROWS}


def test_the_second_runtime_runs_some_operators(quick: frozenset[str]) -> None:
    name = "tests/ops/test_ops.py::test_rows_with_optimization[pocl-"
    run = {row for case in quick if case.startswith(name) for row in case.removeprefix(name).split("-")[0].split("+")}
    assert len(run) >= len(REGISTRY) // 6


def test_every_template_runs(quick: frozenset[str]) -> None:
    """test_oclgrind.py itself checks that it leaves none of the portable ones out."""
    tests = functions(quick)
    assert "tests/kernels/test_oclgrind.py::test_kernels_stay_within_their_buffers" in tests
    names = ("activation_products", "attention_tiles", "diagonal_depthwise", "large_images", "row_major")
    emulated = ("test_emulated_kernels.py", *(f"mma/test_{name}.py" for name in names))
    modules = (*emulated, "integers/test_integer_products.py")
    assert set().union(*(literals(ROOT / "tests" / "kernels" / name) for name in modules)) >= NOT_PORTABLE


def test_every_verb_runs() -> None:
    """Each is an argument in some test of the command line."""
    modules = (path for folder in ("batch", "cli") for path in (ROOT / "tests" / folder).rglob("test_*.py"))
    assert VERBS.keys() - literals(*modules) == set()
