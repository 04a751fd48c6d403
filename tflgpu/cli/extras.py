"""Packages that a verb needs and that not everybody has installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tflgpu.errors import install_command

# Packages, and the extras that bring them.
EXTRAS = {"pyarrow": "predict", "ray": "ray", "fastapi": "openai", "uvicorn": "openai", "prometheus_client": "openai"}


@contextmanager
def naming_extras() -> Iterator[None]:
    """Raise ValueError, with what to install, for a package that is missing and that an extra brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise ValueError(f"this needs the package {error.name}; install it with {install_command(extra)}") from error
