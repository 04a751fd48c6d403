"""The work-group sizes that a compiler allows for functions, and the kernels that these limit."""

from __future__ import annotations

from tests.quick import RUNTIMES
from tests.support.limited_devices import Simulation, limited
from tflgpu.artifact.executable import DeviceBuffer, Executable, Launch, Persistent, PersistentRun
from tflgpu.runtime.opencl.build import WideGroupsError, check_groups
from tflgpu.runtime.opencl.program import compile_program
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target import WHOLE_PLAN


def too_wide(executable: Executable, **allowed: int) -> dict[str, int]:
    """The groups that the kernels of an executable are allowed where they are too wide. allowed: by function."""
    with limited(RUNTIMES[0], Simulation(groups=allowed)) as device:
        session = open_session(device)
        program = compile_program(session.context, "".join(f"__kernel void {name}() {{}}\n" for name in allowed))
        try:
            check_groups(program, executable, session)
        except WideGroupsError as error:
            return error.sizes
    return {}


def launches(*each: tuple[str, str, int]) -> Executable:
    """An executable of kernels by key, function and work-items of a group."""
    found = tuple(Launch(key, function, 1, size, (), (), 0, 0, 0) for key, function, size in each)
    return Executable((DeviceBuffer(16),), found, (), ())


def test_all_kernels_of_a_function_are_too_wide() -> None:
    executable = launches(("a", "f", 128), ("b", "f", 128), ("small", "f", 16), ("other", "g", 128))
    assert too_wide(executable, f=16, g=128) == {"a": 16, "b": 16}


def test_a_kernel_of_several_functions_is_allowed_what_all_of_them_are() -> None:
    """Their constants differ."""
    executable = launches(("a", "f", 128), ("a", "g", 128), ("a", "h", 128))
    assert too_wide(executable, f=64, g=16, h=32) == {"a": 16}


def test_one_kernel_for_all_has_a_key_of_its_own() -> None:
    executable = launches(("a", "f", 128), ("b", "f", 128))
    runs = (PersistentRun("whole", 0, 1), PersistentRun("whole_1", 1, 2))
    persistent = Persistent(runs, 128, (0, 1), clock=False)
    executable = Executable(executable.buffers, executable.launches, (), (), persistent=persistent)
    assert too_wide(executable, whole=64, whole_1=32, f=16) == {WHOLE_PLAN: 32}
