"""The partitions that LiteRT has run without harm: in this process, or by the cache in an earlier one."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from tflgpu.artifact.cache import Cache, TrialKey

_tried: set[str] = set()  # the names of keys; for models without a cache


def is_tried(model: bytes, cache: Cache | None) -> bool:
    """Whether LiteRT has run this model without a crash before."""
    key = _key(model)
    known = key.name in _tried
    if cache is None:
        return known
    if cache.load(key) is not None:
        return True
    if known:  # from a run with another cache, or with none
        cache.store(key, {}, {})
    return known


def remember(model: bytes, cache: Cache | None) -> None:
    """Note that LiteRT has run this model."""
    key = _key(model)
    _tried.add(key.name)
    if cache is not None:
        cache.store(key, {}, {})


def _key(model: bytes) -> TrialKey:
    try:
        litert = version("ai-edge-litert")
    except PackageNotFoundError:  # installed under another name
        litert = ""
    return TrialKey(model, litert)
