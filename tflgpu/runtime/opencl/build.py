"""OpenCL C, Session, Cache -> a program on the device, and the binaries that make the next start fast."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

import numpy as np
import pyopencl as cl

from tflgpu.artifact.cache import Cache, Key, kernel_key, warn_once
from tflgpu.artifact.executable import Executable
from tflgpu.errors import BuildError, DeviceError
from tflgpu.runtime.opencl.process import Helping, interruptible, starts_threads
from tflgpu.runtime.opencl.program import (
    Program,
    binaries_of,
    build_options,
    compile_parts,
    compile_program,
    load_program,
    make_kernel,
)
from tflgpu.runtime.opencl.session import Session, SessionOpening
from tflgpu.target import WHOLE_PLAN

LOGGER = logging.getLogger(__name__)

Binaries = tuple[bytes, ...]

_loading: dict[cl.Device, threading.Thread] = {}  # what loads the compiler of each device, or has loaded it


class WideGroupsError(Exception):
    """Kernels were planned with more work-items in a group than their built forms allow.

    sizes: those that they allow, by the key of the kernel, as :attr:`tflgpu.target.Target.group_sizes` has them.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        super().__init__(f"kernels allow groups of {self.sizes} work-items at most")


def check_groups(program: Program, executable: Executable, session: Session) -> None:
    """Ask a program that was compiled just now for the groups that it allows. Raises WideGroupsError."""
    if executable.claiming:
        return  # they are of one work-item
    planned = [(launch.key, launch.function, launch.local_size) for launch in executable.launches]
    if executable.persistent:
        size = executable.persistent.local_size
        planned = [(WHOLE_PLAN, function, size) for function in executable.persistent.functions]
    query, device, sizes = cl.kernel_work_group_info.WORK_GROUP_SIZE, session.device.handle, dict[str, int]()
    allowed = {name: cast(int, make_kernel(program, name).get_work_group_info(query, device)) for _, name, _ in planned}
    for key, name, size in planned:
        if 0 < allowed[name] < size:
            sizes[key] = min(allowed[name], sizes.get(key, size))
    if sizes:
        raise WideGroupsError(sizes)


def load_compiler(device: cl.Device, opening: SessionOpening) -> None:
    """Let the driver load its compiler while the caller plans: in another process, or in a thread.

    Drivers load it with the first program, and take longer for that than for a small kernel.

    Args:
        device: Its driver is meant.
        opening: The session, which may not be open yet.
    """
    from tflgpu.runtime.opencl.compiler_process import start_compiler  # a warm start does without

    if not start_compiler(device) and device not in _loading and starts_threads():
        thread = _loading[device] = threading.Thread(target=_compile_nothing, args=(opening,), name="tflgpu-compiler")
        thread.start()


def _compile_nothing(opening: SessionOpening) -> None:
    with Helping(), suppress(BuildError, DeviceError, cl.Error):  # the model's own program will tell
        compile_program(opening.session().context, "__kernel void nothing() {}")


def build(
    source: str,
    session: Session,
    binaries: Binaries = (),
    cache: Cache | None = None,
    *,
    parts: int = 1,
    draft: bool = False,
) -> tuple[Program, Binaries]:
    """Return a program: from one of its binaries, or from the cache; else compiled.

    Args:
        source: The program's text.
        session: The device.
        binaries: May be of another driver, which then refuses them.
        cache: Where binaries of the same text may be; None for no cache.
        parts: The number of parts that can be compiled at the same time.
        draft: Whether it will be replaced by what :func:`keep` makes of it, so that it may be slower.

    Returns:
        The program, and its binaries; none if it was compiled.

    Raises:
        BuildError: The device's compiler refuses the source; the error has it, and the log.
    """
    program = _loaded(session, binaries)
    if program is not None:
        return program, binaries
    known = cache.load(_key(source, session)) if cache else None
    if known is not None:
        binaries = tuple(known.tensors[name].tobytes() for name in sorted(known.tensors))
        program = _loaded(session, binaries)
        if program is not None:
            LOGGER.info("the cache has a binary of the kernels")
            return program, binaries
    LOGGER.info("the driver compiles the kernels")
    return _compiled(source, session, parts, draft=draft), ()


def build_together(
    wanted: Mapping[str, int], session: Session, cache: Cache | None
) -> dict[str, tuple[Program, Binaries]]:
    """Build several programs, at the same time where the device's compiler can; see :func:`build`.

    Args:
        wanted: The sources, and how many parts each has.
        session: The device.
        cache: Where binaries of the same texts may be; None for no cache.

    Returns:
        Programs by source. Those that cannot be built are left out, and all are where the compiler takes one program at
        a time.
    """
    if len(wanted) < 2 or not makes_drafts(session) or not starts_threads():
        return {}
    from concurrent.futures import ThreadPoolExecutor  # a warm start does without

    found = dict[str, tuple[Program, Binaries]]()

    def build_one(source: str, parts: int) -> None:
        with Helping(), suppress(BuildError, DeviceError, cl.Error):  # who builds it alone will be told
            found[source] = build(source, session, (), cache, parts=parts)

    def build_each() -> None:
        with ThreadPoolExecutor(len(wanted), thread_name_prefix="tflgpu-build") as pool:
            list(pool.map(build_one, wanted, wanted.values()))

    interruptible(build_each)
    return found


def _compiled(source: str, session: Session, parts: int, *, draft: bool) -> Program:
    from tflgpu.runtime.opencl.compiler_process import compiled_apart  # a warm start does without

    if binary := compiled_apart(session.device.handle, source):
        program = load_program(session.context, binary)
        if program is not None:
            return program
    if session.device.handle in _loading:
        _loading[session.device.handle].join()  # Oclgrind cannot compile two programs at once
    if parts > 1 and makes_drafts(session):
        return interruptible(lambda: compile_parts(session.context, source, parts, draft=draft))
    return interruptible(lambda: compile_program(session.context, source, draft=draft))


def makes_drafts(session: Session) -> bool:
    """Whether the device's compiler can take less time for code that will be replaced.

    It compiles several programs at the same time, too, and what replaces them is linked from all.
    """
    device = session.device.handle
    return build_options(device, "", draft=True) != build_options(device, "")


def keep(program: Program, source: str, session: Session, cache: Cache) -> Binaries:
    """Store the binaries of a compiled program in the cache, and return them.

    To be called once every kernel has run: PoCL compiles each when it is first launched.

    Args:
        program: Made by :func:`build`.
        source: The program's text.
        session: The device.
        cache: Where to keep them.

    Returns:
        None of them where parts cannot be made a whole.
    """
    binaries = binaries_of(program)
    if binaries:
        arrays = {f"binary.{i}": np.frombuffer(binary, np.uint8) for i, binary in enumerate(binaries)}
        cache.store(_key(source, session), arrays, {})
    return binaries


def _key(source: str, session: Session) -> Key:
    flags = build_options(session.device.handle, source)
    return kernel_key(source, " ".join(flags), session.device.identity)


def _loaded(session: Session, binaries: Binaries) -> cl.Program | None:
    """Return the program of the first binary that the driver takes."""
    for binary in binaries:
        program = load_program(session.context, binary)
        if program is not None:
            return program
    if binaries:
        name, driver = session.device.name, session.device.driver
        warn_once("binary", f"{name} refuses a binary that its driver {driver} made; the source is compiled again")
    return None
