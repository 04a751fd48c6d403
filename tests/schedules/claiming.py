"""The claiming executor's kernel, rendered for a small network, and a host that calls it."""

from __future__ import annotations

import re

from tests.schedules.kernel_c import compile_kernel
from tests.schedules.machine import Cell, State, memory_after
from tests.schedules.networks import GIVE, INPUT, TAKE, Layers, is_complete, network
from tflgpu.codegen.whole_kernels import render_claiming

Edit = tuple[str, str, int]  # of a text: a part, what replaces it, and which of its occurrences


# A host that asks for runs, computes as the first work-group, and takes the results of those that are over.
HOST = f"""
#define WORDS ((volatile __global atomic_uint *)words)
__kernel void host(__global uchar *buffer0, volatile __global uint *words, uint spin_limit, int end, uint runs) {{
  for (uint run = 1; run <= runs; ++run) {{
    visit({GIVE}, run);
    atomic_store_explicit(WORDS + 2, run, memory_order_release, memory_scope_device);
    claiming(buffer0, words, spin_limit, 0, end, 2, 0);
    if (atomic_load_explicit(WORDS, memory_order_acquire, memory_scope_device) != run) return;
    visit({TAKE}, run);
  }}
}}
"""


class Claiming:
    """The kernel of a network. brief: whether its launches are one chain where they are of one tile."""

    def __init__(self, layers: Layers, *, brief: bool = False, edit: Edit | None = None) -> None:
        self.layers = layers
        text, claiming = render_claiming(*network(layers, macs=0 if brief else 1 << 20), glances=1)
        self.text = replaced(text, *edit) if edit else text
        self.program, self.end = compile_kernel(self.text, claiming.function), len(claiming.order)

    def begin(
        self, state: State, groups: int, together: int, spin_limit: int = 1, lingers: int = 0, first: int = 0
    ) -> None:
        numbers = {"spin_limit": spin_limit, "begin": 0, "end": self.end, "groups": groups, "lingers": lingers}
        state.launch(self.program, numbers, together, first=first)

    def run_all(self, state: State, groups: int, spin_limit: int) -> State:
        """The memory after a run, which is the same after all schedules of work-groups that are launched together."""
        run = state.value(("words", 0))
        state.cells[INPUT] = state.cells.get(INPUT, Cell())._replace(value=run)
        self.begin(state, groups, groups, spin_limit)

        def judge(end: State) -> bool:
            assert is_complete(end, self.layers, run=run)
            return True

        return memory_after(state, judge)


def replaced(text: str, old: str, new: str, which: int) -> str:
    """A text with one occurrence of a part replaced."""
    begins = [found.start() for found in re.finditer(re.escape(old), text)]
    begin = begins[which]
    return text[:begin] + new + text[begin + len(old) :]
