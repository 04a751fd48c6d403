"""Operators that the device cannot run, on the CPU by LiteRT's interpreter (the extra ``fallback``).

``frontend/partition.py`` decides which operators these are, and cuts them into partitions. A partition for the CPU is a
model file of its own (``submodel.py``). The compiler asks LiteRT for the shapes of its results
(``guarded_requests.py``) and lets LiteRT prepare it; ``cpu_engine.py`` runs it. Arrays of the host go in and come out:
a run copies from the device what the partition reads, and to the device what it writes.

LiteRT trusts model files, so it may crash, loop for ever or take all memory. What it has not done before it does first
in a guarded process (``guarded_process.py``), which runs ``litert_interpreter.py`` as a program, with limits of time
and memory. If the process ends, ``guarded_requests.py`` finds the operator, and raises UnsupportedError. After a good
first run, which the cache notes, the partition runs in this process. A model that runs wholly on the device imports
nothing of this.
"""

from __future__ import annotations

from importlib.util import find_spec


def is_installed() -> bool:
    """Whether LiteRT's interpreter can be imported."""
    return find_spec("ai_edge_litert") is not None
