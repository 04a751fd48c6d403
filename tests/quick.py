"""The quick suite: what ``pytest`` runs. ``pytest --all`` runs every case.

The quick suite has every test that is not marked ``full(why)``. Of a test it has these cases: those whose parameters
fulfil the condition of its mark ``quick(when=condition)``; without that mark, all of them on the first OpenCL runtime,
and one on the second. ``tests/architecture/test_quick_suite.py`` checks that the quick suite still touches everything.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import pytest

# Two independent compilers: what one of them forgives, the other may not. The second one takes most of the time.
RUNTIMES = ("Intel(R) OpenCL", "Portable Computing Language")


def on_first_runtime(device_name: str | None) -> bool:
    """A condition for tests that take long on the second runtime."""
    return device_name != RUNTIMES[1]


def quick_suite(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The items of the quick suite, in their order."""
    kept = []
    on_second_runtime: set[str] = set()
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if item.get_closest_marker("full"):
            continue
        if quick := item.get_closest_marker("quick"):
            condition = quick.kwargs["when"]
            names = inspect.signature(condition).parameters
            if not condition(**{name: parameters.get(name) for name in names}):
                continue
        elif parameters.get("device_name") == RUNTIMES[1]:
            function = item.nodeid.partition("[")[0]
            if function in on_second_runtime:
                continue
            on_second_runtime.add(function)
        kept.append(item)
    return kept
