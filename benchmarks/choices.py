"""Several choices on the command line of a benchmark: ``type=precisions`` of an argument."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import cast, get_args

from tflgpu.options import ExecutorChoice, Precision


def precisions(text: str) -> list[Precision]:
    return cast(list[Precision], _listed(text, get_args(Precision)))


def executors(text: str) -> list[ExecutorChoice]:
    return cast(list[ExecutorChoice], _listed(text, get_args(ExecutorChoice)))


def _listed(text: str, allowed: tuple[str, ...]) -> list[str]:
    """The words between commas, each of those that are allowed."""
    found = text.split(",")
    if unknown := [each for each in found if each not in allowed]:
        raise ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
    return found
