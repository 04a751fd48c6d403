"""The CUDA driver as a linker of PTX. There is none here: a library of the same functions takes its place."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from tflgpu.runtime.opencl.program import SPLIT_COMPILE, _Cuda, _Failure

CUBIN = ctypes.create_string_buffer(b"machine code", 12)


class Linker:
    """options: those that the driver knows. refuses: whether it can link nothing."""

    def __init__(self, options: frozenset[int], refuses: bool = False) -> None:
        self._known, self._refuses = options, refuses
        self.options: dict[int, int | None] = {}
        self.destroyed = 0
        self.texts = list[bytes]()

    def link(self, texts: list[bytes]) -> bytes:
        functions = {"Create_v2": self.create, "AddData_v2": self.add, "Complete": self.complete}
        library = SimpleNamespace(
            **{f"cuLink{name}": each for name, each in functions.items()}, cuLinkDestroy=self.destroy
        )
        return _Cuda(library).link(texts)  # type: ignore[arg-type]

    def create(self, count: int, names: Any, values: Any, state: Any) -> int:
        self.options = dict(zip(names[:count], values[:count], strict=True))
        return int(not self._known.issuperset(self.options))

    def add(self, state: Any, kind: int, text: Any, length: Any, *rest: object) -> int:
        self.texts.append(text.value)
        return int(self._refuses or kind != 1 or len(text.value) + 1 != length.value)

    def complete(self, state: Any, cubin: Any, size: Any) -> int:
        cubin._obj.value, size._obj.value = ctypes.addressof(CUBIN), len(CUBIN)
        return 0

    def destroy(self, state: Any) -> int:
        self.destroyed += 1
        return 0


@pytest.mark.parametrize("known", [frozenset({SPLIT_COMPILE}), frozenset()])
def test_functions_are_optimized_in_threads_where_the_driver_can(known: frozenset[int]) -> None:
    linker = Linker(known)
    assert linker.link([b".entry a .entry b\0"]) == b"machine code"
    assert set(linker.options) == known and not any(linker.options.values()), "0 stands for all threads"
    assert linker.destroyed == 1


def test_one_program_is_made_of_several_texts() -> None:
    linker = Linker(frozenset({SPLIT_COMPILE}))
    assert linker.link([b".entry a\0", b".entry b"]) == b"machine code"
    assert linker.texts == [b".entry a", b".entry b"] and linker.destroyed == 1
    assert set(linker.options) == {SPLIT_COMPILE}, "there are two kernels"


def test_what_cannot_be_linked_is_a_failure() -> None:
    linker = Linker(frozenset({SPLIT_COMPILE}), refuses=True)
    with pytest.raises(_Failure):
        linker.link([b".entry a .entry b"])
    assert linker.destroyed == 2


def test_a_single_kernel_is_optimized_by_one_thread() -> None:
    linker = Linker(frozenset({SPLIT_COMPILE}))
    assert linker.link([b".entry a"]) == b"machine code" and not linker.options


def test_the_context_of_a_device_is_current_while_it_is_needed() -> None:
    calls = list[str]()

    class Driver:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return lambda *arguments: 0

    device: Any = SimpleNamespace(pci_domain_id_nv=0, pci_bus_id_nv=1, pci_slot_id_nv=2)
    with _Cuda(Driver()).context(device):  # type: ignore[arg-type]
        assert calls[-1] == "cuCtxPushCurrent_v2"
    assert calls[-2:] == ["cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2"]
