"""The quick suite: what ``pytest`` runs. ``pytest --all`` runs every case.

The quick suite has every test that is not marked ``full(why)``. Of a test it has these cases: those whose parameters
fulfil the condition of its mark ``quick(when=condition)``; without that mark, all of them on the first OpenCL runtime.
``tests/architecture/test_quick_suite.py`` checks that the quick suite still touches everything.

Neither has cases on the second runtime that a mark ``second_runtime(when=condition)`` leaves out.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import pytest

# Two independent compilers: what one of them forgives, the other may not. The second one takes up to ten times as long.
RUNTIMES = ("Intel(R) OpenCL", "Portable Computing Language")


def on_first_runtime(device_name: str | None) -> bool:
    """A condition for tests that take long on the second runtime."""
    return device_name != RUNTIMES[1]


def full_suite(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """What is left of all items, in their order."""
    return [
        item
        for item in items
        if _parameters(item).get("device_name") != RUNTIMES[1] or _fulfils(item, "second_runtime")
    ]


def quick_suite(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """What the quick suite has of the items of the full one, in their order."""
    return [item for item in items if not item.get_closest_marker("full") and _is_quick(item)]


def _is_quick(item: pytest.Item) -> bool:
    if item.get_closest_marker("quick"):
        return _fulfils(item, "quick")
    return _parameters(item).get("device_name") != RUNTIMES[1]


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _fulfils(item: pytest.Item, name: str) -> bool:
    """Whether a case fulfils the condition of a mark, if there is one."""
    mark = item.get_closest_marker(name)
    if mark is None:
        return True
    condition, parameters = mark.kwargs["when"], _parameters(item)
    return bool(condition(**{name: parameters.get(name) for name in inspect.signature(condition).parameters}))
