"""Which integer unit the host's CPU has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tflgpu.runtime.opencl import description


@pytest.mark.parametrize(("machine", "found"), [("x86_64", {"flags", ":", "avx2"}), ("aarch64", set())])
def test_an_emulated_machine_has_not_the_units_of_the_host(
    machine: str, found: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container for ARM on an x86 machine shows the flags of that one."""
    monkeypatch.setattr(description.os, "uname", lambda: SimpleNamespace(machine=machine))
    flags = tmp_path / "cpuinfo"
    assert description._flags_of_host(flags.with_name("none")) == set()
    flags.write_text("flags\t: avx2\n")
    assert description._flags_of_host(flags) == found
