"""LiteRT's choice of CPU kernels, which programs name when they make an interpreter."""

from __future__ import annotations

from enum import Enum, unique


@unique
class OpResolverType(Enum):
    """LiteRT's sets of CPU kernels, by its names and numbers. They make no difference to kernels of a device."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


def check_resolver(given: object) -> None:
    """Accept a member of :class:`OpResolverType`, LiteRT's own included. It has no effect.

    Args:
        given: The argument ``experimental_op_resolver_type`` of an Interpreter.

    Raises:
        ValueError: It is no such member.
    """
    name = given.name if isinstance(given, Enum) else None
    if name not in OpResolverType.__members__:
        raise ValueError(f"Unrecognized passed in op resolver type: {given}")
