"""The quick suite: what ``pytest`` runs. ``pytest --all`` runs every case.

The quick suite has every test but those marked ``full``, and of a test these cases:

- on the first runtime all of them, on the second one the first of them, or
- where the test is marked ``quick(condition)`` those whose parameters fulfil the condition.

``tests/architecture/test_quick_suite.py`` checks that it still touches everything.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

# Two independent compilers: what one of them forgives, the other may not.
RUNTIMES = ("Intel(R) OpenCL", "Portable Computing Language")


def quick_suite(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The items of the quick suite."""
    kept: set[pytest.Item] = set()
    on_second_runtime: set[str] = set()
    for item in items:
        if item.get_closest_marker("full"):
            continue
        parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        quick = item.get_closest_marker("quick")
        if quick:
            (condition,) = quick.args
            if condition(**{name: parameters[name] for name in condition.__code__.co_varnames}):
                kept.add(item)
        elif parameters.get("device_name") != RUNTIMES[1]:
            kept.add(item)
        elif (function := item.nodeid.partition("[")[0]) not in on_second_runtime:
            on_second_runtime.add(function)
            kept.add(item)
    return kept
