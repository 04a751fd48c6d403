"""Packages that add operators: those with an entry point in the group ``tflgpu.operators``.

Importing such a package declares its operators (docs/guide/custom-operators.md). That is done when a model has an
operator that nothing else declares, so a package that is broken costs the other models nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import MutableMapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from threading import RLock
from typing import Any

from tflgpu.errors import PluginWarning

GROUP = "tflgpu.operators"

_lock = RLock()
_loaded = False
_failures: list[str] = []


@cache
def installed() -> tuple[EntryPoint, ...]:
    """Return the entry points of all packages, in the order of the packages' names. Imports none of them."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda entry: (distribution_of(entry), entry.name)))


@cache
def versions() -> tuple[str, ...]:
    """``name version`` of each of these packages, once: what models compiled with them depend on."""
    return tuple(dict.fromkeys(map(distribution_of, installed())))


def distribution_of(entry: EntryPoint) -> str:
    """Return ``name version`` of the package that an entry point belongs to.

    Args:
        entry: An entry point of the group ``tflgpu.operators``.
    """
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package without a name"


def load_into(registry: MutableMapping[str, Any]) -> tuple[str, ...]:
    """Import every package with an entry point once; each adds its operators to a registry.

    The declarations of a package that fails are taken back. A PluginWarning is given for each.

    Args:
        registry: The declarations of operators by their codes. Later calls ignore it.

    Returns:
        A sentence for each package that failed, also in an earlier call.
    """
    global _loaded
    with _lock:
        if not _loaded:
            _loaded = True
            for entry in installed():
                _load(entry, registry)
    return tuple(_failures)


def _load(entry: EntryPoint, registry: MutableMapping[str, Any]) -> None:
    before = dict(registry)
    try:
        entry.load()
    except Exception as error:  # whatever it is, it is not this model's fault
        for added in registry.keys() - before.keys():  # never emptied: other threads may be compiling
            del registry[added]
        registry.update(before)
        _failures.append(f"the operators of {distribution_of(entry)} are missing: {type(error).__name__}: {error}")
        warnings.warn(_failures[-1], PluginWarning, stacklevel=2)
