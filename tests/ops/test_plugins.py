"""Operators from other packages: examples/custom_operator, and packages that cannot be imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "custom_operator"
PACKAGE = "tflgpu_filters"

# Compiles the model of the example, and says what was imported for it.
START = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import run, tflgpu
    error, seconds = "", {}
    try:
        seconds = tflgpu.compile(run.model()).seconds
    except tflgpu.ModelError as refusal:
        error = str(refusal)
print(json.dumps({
    "stages": list(seconds), "error": error,
    "imported": [m for m in ("tflgpu_filters", "tflgpu.ops") if m in sys.modules],
    "warnings": [str(w.message) for w in caught if issubclass(w.category, tflgpu.PluginWarning)],
}))
"""


def install(site: Path, version: str = "0.1", example: Path = EXAMPLE) -> None:
    """Install an example as pip would, without pip: its modules, and what its pyproject.toml says of them."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    (package,) = project["entry-points"]["tflgpu.operators"].values()
    shutil.copytree(example / package, site / package, dirs_exist_ok=True)
    for old in site.glob("*.dist-info"):
        shutil.rmtree(old)
    facts = site / f"{package}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n")
    lines = [f"{name} = {module}" for name, module in project["entry-points"]["tflgpu.operators"].items()]
    (facts / "entry_points.txt").write_text("\n".join(("[tflgpu.operators]", *lines)))


def python(site: Path, *command: str | Path) -> str:
    """The output of a Python process that finds the packages in ``site``."""
    paths = os.pathsep.join((str(site), str(EXAMPLE), os.environ.get("PYTHONPATH", "")))
    settings = os.environ | {"PYTHONPATH": paths, "TFLGPU_CACHE_DIR": str(site / "cache")}
    done = subprocess.run([sys.executable, *command], env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(site: Path) -> dict[str, list[str]]:
    answer: dict[str, list[str]] = json.loads(python(site, "-c", START))
    return answer


@pytest.mark.parametrize("name", ["custom_operator", "four_bit_weights"])
def test_an_example_computes_what_its_readme_shows(name: str, tmp_path: Path) -> None:
    install(tmp_path, example=EXAMPLES / name)
    output = python(tmp_path, EXAMPLES / name / "run.py")
    assert output in (EXAMPLES / name / "README.md").read_text()


@pytest.mark.parametrize("name", ["custom_operator", "four_bit_weights"])
def test_an_example_says_which_package_it_misses(name: str) -> None:
    run = subprocess.run([sys.executable, EXAMPLES / name / "run.py"], capture_output=True, text=True, check=False)
    if run.returncode:  # the package is not installed here
        assert run.stderr.endswith(f"pip install ./examples/{name}\n") and "Traceback" not in run.stderr


@pytest.mark.full("it starts four processes")
def test_another_version_of_the_package_is_a_miss(tmp_path: Path) -> None:
    install(tmp_path)
    assert "plan" in start(tmp_path)["stages"]
    warm = start(tmp_path)
    assert "plan" not in warm["stages"] and warm["imported"] == []
    install(tmp_path, version="0.2")
    assert "plan" in start(tmp_path)["stages"]


def test_a_package_that_fails_is_named_where_it_is_missed(tmp_path: Path) -> None:
    install(tmp_path)
    with (tmp_path / PACKAGE / "__init__.py").open("a") as module:
        module.write("\nimport no_such_module\n")  # after the operators were declared
    found = start(tmp_path)
    (warning,) = found["warnings"]
    assert (
        warning
        == "the operators of tflgpu-filters 0.1 are missing: ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert "'RowMedian' is known neither to tflgpu nor to LiteRT" in found["error"] and warning in found["error"]


def test_an_operator_is_declared_once(tmp_path: Path) -> None:
    install(tmp_path)
    module = tmp_path / PACKAGE / "__init__.py"
    module.write_text(module.read_text().replace('"SoftShrink"', '"ADD"'))
    assert "ValueError: operator ADD is declared already" in start(tmp_path)["warnings"][0]


def test_models_without_custom_operators_import_no_package(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / PACKAGE / "__init__.py").write_text("raise SystemExit('imported')")
    script = "import tflgpu, sys; tflgpu.compile(sys.argv[1])"
    python(tmp_path, "-W", "error", "-c", script, EXAMPLE.parent / "digits" / "digits.tflite")


@pytest.mark.parametrize("name", ["nothing/kernel.cl.j2", "tflgpu/no_such_file.cl.j2", "kernel.cl.j2"])
def test_a_template_that_is_nowhere(name: str) -> None:
    from jinja2 import TemplateNotFound

    from tflgpu.codegen.environment import environment

    with pytest.raises(TemplateNotFound):
        environment().get_template(name)
