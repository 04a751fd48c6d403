"""A driver's compiler in a process of its own: what it makes, and what becomes of it when things go wrong."""

from __future__ import annotations

import ast
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.quick import RUNTIMES
from tests.support.models import Builder
from tflgpu.errors import BuildError
from tflgpu.runtime.opencl import build, compiler_process, compiler_server
from tflgpu.runtime.opencl.build import build as build_program
from tflgpu.runtime.opencl.compiler_process import compiled_apart, start_compiler
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program
from tflgpu.runtime.opencl.session import Session, open_session

pytestmark = pytest.mark.compiles

KERNEL = "__kernel void nothing() {}"

# In place of the server: what it does once it has been asked.
SERVER = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.stdout.write("\\n")
sys.stdout.flush()
sys.stdin.buffer.readline()
"""


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """On a device whose compiler is in a process of its own; without the one that other tests have."""
    monkeypatch.setattr(compiler_process, "_compilers", {})
    yield open_session(choose(RUNTIMES[0]))
    for compiler in compiler_process._compilers.values():
        if compiler is not None:
            compiler._process.end()


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let another program be the server."""

    def replace(program: str) -> None:
        path = tmp_path / "server.py"
        path.write_text(program)
        monkeypatch.setattr(compiler_process, "SERVER", path)

    return replace


def doubling() -> bytes:
    builder = Builder()
    x = builder.input((1, 2, 2, 4))
    return builder.finish([builder.add("ADD", [x, x], (1, 2, 2, 4))])


def test_a_model_is_compiled_without_the_compiler_here(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "compile_program", lambda *_: pytest.fail("it was compiled in this process"))
    model = tflgpu.compile(doubling(), tflgpu.Options(device=session.device.platform, cache="off"))
    (y,) = model.run(np.ones((1, 2, 2, 4), np.float32)).values()
    np.testing.assert_array_equal(y, np.full((1, 2, 2, 4), 2.0))


def test_nobody_starts_it_by_building(session: Session) -> None:
    assert compiled_apart(session.device.handle, KERNEL) == b""
    assert not compiler_process._compilers


@pytest.mark.parametrize("platform", RUNTIMES[1:])
def test_drivers_whose_binaries_are_not_whole_compile_here(platform: str) -> None:
    assert not start_compiler(choose(platform).handle)


def test_the_device_refuses_a_source_in_its_own_words(session: Session) -> None:
    start_compiler(session.device.handle)
    with pytest.raises(BuildError, match="missing_function") as refused:
        build_program("__kernel void wrong() { missing_function(); }", session)
    assert "missing_function" in refused.value.log
    assert compiled_apart(session.device.handle, KERNEL), "it goes on"


def test_a_crash_is_a_build_error(session: Session, pretend: Callable[[str], None]) -> None:
    pretend(SERVER + "os.kill(os.getpid(), signal.SIGSEGV)")
    assert start_compiler(session.device.handle)
    with pytest.raises(BuildError, match=r"could not compile generated source: its compiler crashed \(SIGSEGV\)"):
        build_program(KERNEL, session)
    pretend(Path(compiler_server.__file__).read_text())
    assert compiled_apart(session.device.handle, KERNEL), "the next program has a new one"


def only_once(mark: Path, end: str) -> str:
    """A server whose first process, which leaves a mark, ends otherwise."""
    real = Path(compiler_server.__file__).read_text()
    again = f"import pathlib\nif (mark := pathlib.Path({str(mark)!r})).exists():\n  exec({real!r})"
    return f"{again}\n{SERVER}mark.touch()\n{end}"


def test_a_crash_that_does_not_come_again_is_none(
    session: Session, pretend: Callable[[str], None], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    pretend(only_once(mark, "os.kill(os.getpid(), signal.SIGSEGV)"))
    assert start_compiler(session.device.handle)
    assert compiled_apart(session.device.handle, KERNEL)
    assert mark.exists()


@pytest.mark.parametrize("program", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_what_does_not_start_is_done_without(program: str, session: Session, pretend: Callable[[str], None]) -> None:
    pretend(program)
    assert start_compiler(session.device.handle)
    build_program(KERNEL, session)
    assert not start_compiler(session.device.handle), "it is not tried again"


def test_one_that_is_never_ready_is_done_without(
    session: Session, pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_process, "START_SECONDS", 0.05)
    pretend("import time; time.sleep(60)")
    start_compiler(session.device.handle)
    build_program(KERNEL, session)
    assert not start_compiler(session.device.handle)


def test_one_that_ended_for_want_of_questions_is_done_without(session: Session, pretend: Callable[[str], None]) -> None:
    """If it ends in the moment in which it is asked; otherwise a new one is started."""
    pretend(SERVER)
    start_compiler(session.device.handle)
    build_program(KERNEL, session)


@pytest.mark.parametrize("executable", ["", "/no/such/python"])
def test_without_an_interpreter(executable: str, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert not start_compiler(session.device.handle)
    build_program(KERNEL, session)


def test_a_binary_that_is_refused_is_compiled_here(session: Session, pretend: Callable[[str], None]) -> None:
    pretend(SERVER + "print(3); print('no', flush=True); time.sleep(60)")
    start_compiler(session.device.handle)
    build_program(KERNEL, session)


def test_ctrl_c_ends_the_compiler(session: Session, pretend: Callable[[str], None]) -> None:
    pretend(SERVER + f"os.kill({os.getpid()}, signal.SIGINT); time.sleep(60)")
    start_compiler(session.device.handle)
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        build_program(KERNEL, session)
    assert time.perf_counter() - begin < 30
    compiler = compiler_process._compilers[session.device.handle]
    assert compiler is not None and not compiler.is_there


def test_threads_do_not_wait_for_each_other(session: Session, pretend: Callable[[str], None], tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    pretend(only_once(asked, "time.sleep(60)"))
    start_compiler(session.device.handle)
    other = threading.Thread(target=build_program, args=(KERNEL, session))
    other.start()
    while not asked.exists():
        time.sleep(0.01)
    build_program(KERNEL, session)
    compiler = compiler_process._compilers[session.device.handle]
    assert compiler is not None
    compiler._process.kill()
    other.join()


def test_it_is_as_if_compiled_here(session: Session) -> None:
    start_compiler(session.device.handle)
    source = "__kernel void fill(__global float *to) { to[get_global_id(0)] = 3.0f / get_global_size(0); }"
    apart, here = build_program(source, session)[0], compile_program(session.context, source)
    assert apart.kernel_names == here.kernel_names == "fill"


def test_the_server_ends_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Echo:
        def binary(self, source: bytes, options: bytes) -> bytes:
            return source + options

    monkeypatch.setattr(compiler_server, "IDLE_SECONDS", 0.05)
    (requests, question), (answer, replies) = os.pipe(), os.pipe()
    os.write(question, b"1 2\nabc")
    with os.fdopen(requests, "rb") as asked, os.fdopen(replies, "wb") as answered:
        compiler_server.serve(Echo(), asked, answered)  # type: ignore[arg-type]
    assert os.read(answer, 100) == b"\n3\nbca"
    os.close(question)
    os.close(answer)


def test_the_server_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(compiler_server.__file__).read_text())
    imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    imported += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
