"""Programs compiled in a process of their own, so that this one never loads the driver's compiler."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from pathlib import Path

import pyopencl as cl

from tflgpu.errors import BuildError
from tflgpu.processes import ServerProcess, can_run, end_in_words
from tflgpu.runtime.opencl import compiler_server
from tflgpu.runtime.opencl.devices import root_device
from tflgpu.runtime.opencl.driver_files import source_of
from tflgpu.runtime.opencl.program import build_options, whole_text
from tflgpu.runtime.opencl.quirks import Driver, quirks_of, with_advice

SERVER = Path(compiler_server.__file__)

# Until the driver's compiler is loaded. That takes 0.15 s where nothing else runs.
START_SECONDS = 20.0


class CompilerProcess:
    """The compiler for a device, in a process that ends when it has not been asked for a while.

    library: the driver's, of which the device is one of the first platform. Raises OSError if it cannot be started.
    """

    def __init__(self, device: cl.Device, library: str) -> None:
        self._device = device
        # Libraries that a driver needs may lie beside it, where the dynamic linker does not look.
        paths = filter(None, (os.path.dirname(library), os.environ.get("LD_LIBRARY_PATH")))
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)}
        number = device.platform.get_devices().index(device)
        self._process = ServerProcess(["-I", "-S", str(SERVER), library, str(number)], environment)
        self._is_loaded = False
        self._lock = threading.Lock()
        # The system keeps a process that has ended until somebody has waited for it.
        threading.Thread(target=self._process.wait, name="tflgpu-compiler-process", daemon=True).start()

    @property
    def is_there(self) -> bool:
        """Whether the process has not ended."""
        return self._process.is_there

    def binary(self, source: str) -> bytes:
        """Return the binary of a program.

        Args:
            source: The program's text.

        Returns:
            Nothing if the compiler refuses it, or is busy with another thread's.

        Raises:
            OSError: The compiler cannot be loaded there.
            BuildError: The compiler crashes.
        """
        if not self._lock.acquire(blocking=False):
            return b""
        try:
            self._await_compiler()
            return self._answer(source)
        except BaseException:  # an interrupt, too: this answer would be taken for that of the next question
            self._process.end()
            raise
        finally:
            self._lock.release()

    def _await_compiler(self) -> None:
        if not self._is_loaded:
            loaded = select.poll()
            loaded.register(self._process.replies, select.POLLIN)
            if not loaded.poll(START_SECONDS * 1e3) or not self._process.replies.readline():
                raise ChildProcessError("the driver's compiler cannot be loaded in a process of its own")
            self._is_loaded = True

    def _answer(self, source: str) -> bytes:
        device, process = self._device, self._process
        text, options = whole_text(device, source).encode(), " ".join(build_options(device, source)).encode()
        with suppress(BrokenPipeError):  # there will be no answer, either
            process.requests.write(b"%d %d\n%s%s" % (len(options), len(text), options, text))
            process.requests.flush()
        if length := process.replies.readline():
            return process.replies.read(int(length))
        if code := process.wait():
            message = f"{device.name} could not compile generated source: its compiler {end_in_words(code)}"
            raise BuildError(with_advice(message, Driver.of(device)), source, "")
        return b""  # it has just ended for want of questions


_compilers: dict[cl.Device, CompilerProcess | None] = {}  # the last one for each device; None: there can be none


def start_compiler(device: cl.Device) -> bool:
    """Let the driver load its compiler in a process of its own, if that helps. Returns whether there is one."""
    device = root_device(device)
    known = _compilers.get(device)
    if device not in _compilers or (known and not known.is_there):
        _compilers[device] = _started(device)
    return _compilers[device] is not None


def compiled_apart(device: cl.Device, source: str) -> bytes:
    """Return the binary of a program from a process of its own.

    Args:
        device: The device to compile for.
        source: The program's text.

    Returns:
        Nothing if this process has to compile it: where :func:`start_compiler` could not start a process, or was not
        called.

    Raises:
        BuildError: The compiler crashes twice. Intel's crashed once in some thousands of programs, and compiled the
            same
            one another time.
    """
    try:
        return _binary(device, source)
    except BuildError:
        return _binary(device, source)


def _binary(device: cl.Device, source: str) -> bytes:
    device = root_device(device)
    if _compilers.get(device) is None or not start_compiler(device):
        return b""
    compiler = _compilers[device]
    assert compiler is not None
    try:
        return compiler.binary(source)
    except OSError:
        _compilers[device] = None
        return b""


def _started(device: cl.Device) -> CompilerProcess | None:
    if not any(quirk.compiler_stays for quirk in quirks_of(Driver.of(device))) or not can_run(SERVER):
        return None
    driver = source_of(device.platform)
    try:
        return CompilerProcess(device, driver.library) if driver else None
    except (OSError, RuntimeError):  # Python ends: from 3.12 on it starts no process then
        return None
