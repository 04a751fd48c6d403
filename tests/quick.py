"""The quick suite: what ``pytest`` runs. ``pytest --all`` runs every case.

The quick suite has every test that is not marked ``full(why)``. Of a test it has these cases: those whose parameters
fulfil the condition of its mark ``quick(when=condition)``; without that mark, those on the first OpenCL runtime.
``tests/architecture/test_quick_suite.py`` checks that the quick suite still touches everything.

Neither has cases on the second runtime that a mark ``second_runtime(when=condition)`` leaves out.

The quick suite and ``pytest --all --pairs``, which is what CI runs, have a part of the product of a test's parameters:
of any two parameters, each two values that meet in some case meet in a case that is kept (pairwise testing).
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations

import pytest

# Two independent compilers: what one of them forgives, the other may not. The second one takes up to ten times as long.
RUNTIMES = ("Intel(R) OpenCL", "Portable Computing Language")


def on_first_runtime(device_name: str | None) -> bool:
    """A condition for tests that take long on the second runtime."""
    return device_name != RUNTIMES[1]


def full_suite(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The items that are left of all, in their order."""
    return [
        item
        for item in items
        if _parameters(item).get("device_name") != RUNTIMES[1] or _fulfils(item, "second_runtime")
    ]


def quick_suite(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The items of the full suite that are in the quick suite, in their order."""
    return each_pair([item for item in items if not item.get_closest_marker("full") and _is_quick(item)])


def takes_samples(config: pytest.Config) -> bool:
    """Whether a test that goes through a product itself takes a part of it, as where ``each_pair`` chooses cases."""
    return bool(config.getoption("pairs")) or not config.getoption("all")


def each_pair(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Cases in which all pairs of values of the parameters of each test meet, in their order."""
    items = [*items]
    kept = {cases[n] for cases in _by_test(items).values() for n in covering([*map(_pairs, cases)])}
    return [item for item in items if item in kept]


def _by_test(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    return tests


def covering(cases: Sequence[frozenset[Hashable]]) -> list[int]:
    """The numbers of cases that have all elements together. The case with the most new ones is taken first."""
    missing, taken = frozenset[Hashable]().union(*cases), list[int]()
    most = [(-len(case), number) for number, case in enumerate(cases)]
    heapify(most)
    while missing:
        expected, number = heappop(most)
        new = len(cases[number] & missing)
        if new < -expected:  # others were taken since
            heappush(most, (-new, number))
            continue
        taken.append(number)
        missing -= cases[number]
    return sorted(taken)


def _pairs(item: pytest.Item) -> frozenset[Hashable]:
    """Each two values of its parameters. What one mark gives together is one value; a single value is its own pair."""
    given = {name: id(value) for name, value in _parameters(item).items()}
    together = [tuple(n for n in _names(mark) if n in given) for mark in item.iter_markers("parametrize")]
    alone = given.keys() - {name for names in together for name in names}
    values = [(names, tuple(given[name] for name in names)) for names in (*together, *((name,) for name in alone))]
    return frozenset(map(frozenset, combinations(values, min(2, len(values)))))


def _names(mark: pytest.Mark) -> list[str]:
    """The parameters to which a mark ``parametrize`` gives values."""
    names = mark.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]


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
