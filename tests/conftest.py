"""Fixtures and options of all tests: the quick suite and ``--all``, the tier without devices, hypothesis profiles,
OpenCL runtimes, and real models.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.errors import InvalidArgument

import tflgpu
from tests import left_out
from tests.quick import RUNTIMES, each_pair, full_suite, quick_suite
from tests.support import branches
from tests.support.compiled_before import compiled_once, kept_programs
from tests.support.unoptimized import without_optimization
from tests.tiers import mark_tests, without_devices
from tflgpu.artifact.cache import directory
from tflgpu.runtime.opencl.quirks import Driver, quirks_of

# Tests share a cache of their own, and find nothing that an earlier run, or the user, left behind. Workers and other
# processes that tests start inherit it.
if "PYTEST_XDIST_WORKER" not in os.environ:
    for name in ("TFLGPU_CACHE_DIR", "TFLGPU_TESTS_PROGRAMS", "TFLGPU_TESTS_UNOPTIMIZED", branches.FOLDER):
        os.environ[name] = tempfile.mkdtemp(prefix="tflgpu-cache-")
        atexit.register(shutil.rmtree, os.environ[name], ignore_errors=True)
    if programs := kept_programs():
        os.environ["TFLGPU_TESTS_PROGRAMS"] = str(programs)

# Plans are to be the same on every machine.
os.environ["TFLGPU_COST_MODEL"] = "built-in"

# A shell starts what runs in its background with SIGINT ignored. Tests of Ctrl-C and their processes need the usual
# handler.
signal.signal(signal.SIGINT, signal.default_int_handler)

# readline, which pytest imports, sets these where there is no terminal; what tflgpu prints would be broken into lines.
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)

# An example compiles a model: seconds, not milliseconds. What "too slow" means to hypothesis does not apply.
_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("ci", max_examples=2, derandomize=True, database=None, **_SLOW)
settings.register_profile("dev", max_examples=50, **_SLOW)
settings.load_profile("ci" if "CI" in os.environ else os.environ.get("HYPOTHESIS_PROFILE", "ci"))
PURE = 200  # examples of a test that uses no device, and does not say how many it draws: they take milliseconds


# The names of all cases, and of those of the quick suite, where both were collected.
CASES = pytest.StashKey[tuple[frozenset[str], frozenset[str]]]()


def is_whole(config: pytest.Config) -> bool:
    """Whether pytest collects all tests, and not only some that were named."""
    return list(config.args) == config.getini("testpaths")


def runs_whole(config: pytest.Config) -> bool:
    """Tell whether pytest collects all tests and also runs them."""
    chosen = config.getoption("collectonly") or config.getoption("keyword") or config.getoption("markexpr")
    return is_whole(config) and not chosen


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every case, not only the quick suite (see tests/quick.py)")
    parser.addoption("--pairs", action="store_true", help="of --all, cases in which each two values of parameters meet")


def pytest_configure(config: pytest.Config) -> None:
    """The tests run on CPUs, whatever GPUs their machine has."""
    config.addinivalue_line("filterwarnings", "ignore::tflgpu.DeviceWarning")
    if runs_whole(config):
        branches.count_branches()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Workers leave which branches they have rendered. A run of all tests fails if none has rendered a new one."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        branches.leave()
    elif exitstatus == pytest.ExitCode.OK and runs_whole(session.config) and session.config.getoption("all"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if branches.unknown() else exitstatus


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what the whole suite has left out."""
    if runs_whole(config):
        terminalreporter.section("what was left out")
        for line in (*left_out.lines(), *branches.lines()):
            terminalreporter.line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_tests(items)
    for function in {i.function for i in items if isinstance(i, pytest.Function) and is_hypothesis_test(i.function)} - {
        i.function for i in items if isinstance(i, pytest.Function) and i.get_closest_marker("device")
    }:
        with suppress(InvalidArgument):  # it has settings of its own
            settings(max_examples=PURE)(function)
    everything = full_suite(items)
    quick = quick_suite(everything)
    if is_whole(config):
        config.stash[CASES] = frozenset(i.nodeid for i in everything), frozenset(i.nodeid for i in quick)
    kept = everything if config.getoption("all") else quick
    if config.getoption("pairs"):
        kept = each_pair(kept)
    if runs_whole(config):
        left_out.note(everything, kept)
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=sorted({*items} - {*kept}, key=items.index))
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test without the marker ``device`` uses none, and nor do its fixtures. Others compile each program once."""
    with ExitStack() as kinds:
        if not item.get_closest_marker("device"):
            kinds.enter_context(without_devices())
        elif not item.get_closest_marker("compiles"):
            kinds.enter_context(compiled_once(Path(os.environ["TFLGPU_TESTS_PROGRAMS"])))
        if item.get_closest_marker("unoptimized"):  # what its cache has is not for other tests
            kinds.enter_context(without_optimization())
            patch = kinds.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("TFLGPU_CACHE_DIR", os.environ["TFLGPU_TESTS_UNOPTIMIZED"])
        return (yield)


def missing(what: str) -> NoReturn:
    """Skip on somebody's laptop, fail where everything should be installed."""
    message = f"{what}, which this test needs, is missing"
    if "CI" in os.environ:
        pytest.fail(message)
    pytest.skip(message)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device_name" in metafunc.fixturenames:
        metafunc.parametrize("device_name", RUNTIMES, indirect=True, ids=("intel", "pocl"), scope="session")


@pytest.fixture(scope="session")
def device_name(request: pytest.FixtureRequest) -> str:
    """The platform name of each OpenCL runtime under test, as ``Options.device`` takes it."""
    return usable(request.param)


def usable(name: str) -> str:
    """The platform name of an OpenCL runtime that a test needs."""
    found = next((device for device in tflgpu.devices() if device.platform == name), None)
    if found is None:
        missing(f"the OpenCL runtime {name!r}")
    if any(quirk.name == "unknown CPU" for quirk in quirks_of(Driver(name, found.version, found.driver))):
        missing("a PoCL that knows this CPU (`python -m tests.support.pocl_cpu` mends the one of PyPI)")
    return name


@pytest.fixture(scope="session")
def half_device() -> tflgpu.Device:
    """A device that computes in half. Intel's CPU runtime does, on CPUs without such instructions, too."""
    found = next((device for device in tflgpu.devices() if device.limits.half_arithmetic), None)
    if found is None:
        pytest.skip("no OpenCL device here has cl_khr_fp16")
    return found


@pytest.fixture
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cause of trouble with the cache is reported once in a process; each test is as good as a process of its own."""
    monkeypatch.setattr(directory, "_reported", {})


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real models, images and labels; too large to be part of the repository."""
    folder = Path(os.environ.get("TFLGPU_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "models").is_dir():
        missing(f"the folder of real models {folder}")
    return folder


@pytest.fixture
def emulation() -> None:
    """Where the runtime that emulates tensor cores is missing, tests that need it are skipped, or fail."""
    usable(RUNTIMES[0])
