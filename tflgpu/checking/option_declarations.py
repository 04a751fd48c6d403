"""Declarations of options: the default, the check and the help of each stand beside its name and type."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from reprlib import repr as shortened
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, get_args, get_origin

from tflgpu.errors import warn_caller

# A check takes the name of an option and a caller's value, and returns the value to keep. It raises TypeError or
# ValueError.
Check = Callable[[str, Any], Any]

DECLARED = "declared"  # in the metadata of a field

GOES = "the old name works for one more release"  # ends the warnings about old names


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Declaration of an option besides its name, type and default.

    Attributes:
        help: What it is, for the command line and the documentation's table.
        check: The value to keep of a caller's value. A ``Literal`` needs none: its choices are checked.
        flat: Its name where options have no groups: on the command line and among a delegate's options. By default
            the name of the field.
        command: Whether the commands that run a model have it; a text is the end of their help.
        metavar: Stands for its value in the command line's help.
        absent: What the default None means.
        old_values: What choices are called now, by the names that they had.
    """

    help: str
    check: Check | None
    flat: str
    command: bool | str
    metavar: str | None
    absent: str | None
    old_values: Mapping[str, str]


def option(
    default: Any,
    help: str,
    check: Check | None = None,
    *,
    flat: str = "",
    command: bool | str = False,
    metavar: str | None = None,
    absent: str | None = None,
    old_values: Mapping[str, str] = MappingProxyType({}),
    hash: bool | None = None,
) -> Any:
    """Return a field of a dataclass that is an option.

    Args:
        default: The value without a caller's.
        help: What it is, for the command line and the documentation's table.
        check: Returns the value to keep of a caller's value. A ``Literal`` needs none: its choices are checked.
        flat: Its name where options have no groups: on the command line and among a delegate's options. Empty for the
            name of the field.
        command: Whether the commands that run a model have it; a text is the end of their help.
        metavar: Stands for its value in the command line's help.
        absent: What the default None means.
        old_values: What choices are called now, by the names that they had.
        hash: As for ``dataclasses.field``.
    """
    declared = Declared(
        help=help,
        check=check,
        flat=flat,
        command=command,
        metavar=metavar,
        absent=absent,
        old_values=old_values,
    )
    return field(default=default, hash=hash, metadata={DECLARED: declared})


class Group:
    """Base of the dataclasses whose fields are options that belong together.

    Attributes:
        place: The field of Options that has the group.
    """

    place: ClassVar[str]

    def __init_subclass__(cls, *, place: str) -> None:
        cls.place = place

    def __post_init__(self) -> None:
        """Check every field, and keep immutable copies: the caller can change what was given."""
        check_fields(self, f"{self.place}.")


def choices_of(each: Field[Any]) -> tuple[Any, ...]:
    """Return the values that a field may have, if its type is a ``Literal``; else none.

    Args:
        each: A field of a dataclass of options.
    """
    return get_args(each.type) if get_origin(each.type) is Literal else ()


def check_fields(options: Any, prefix: str = "") -> None:
    """Check every option of an object, and keep what the checks return.

    Args:
        options: An object whose class has no annotations in quotes.
        prefix: What comes before the names of its fields in messages.

    Raises:
        TypeError: A value has a wrong type; the message names the option and says what was expected.
        ValueError: A value is out of range.
    """
    for each in fields(options):
        name, value = f"{prefix}{each.name}", getattr(options, each.name)
        if isinstance(each.type, type) and issubclass(each.type, Group):
            if not isinstance(value, each.type):
                expected = f"tflgpu.{each.type.__name__}(...)"
                raise TypeError(f"Options.{name} is {shortened(value)}; {expected} was expected")
        elif allowed := choices_of(each):
            old_values = each.metadata[DECLARED].old_values
            if isinstance(value, str) and value in old_values:
                message = f"Options.{name} {value!r} is now {old_values[value]!r}; {GOES}"
                warn_caller(message, DeprecationWarning)
                value = old_values[value]
                object.__setattr__(options, each.name, value)
            spelled = value.replace("-", "_") if isinstance(value, str) else value
            if spelled != value and spelled in allowed:
                warn_caller(f"Options.{name} {value!r} is spelled {spelled!r}", UserWarning)
                value = spelled
                object.__setattr__(options, each.name, value)
            if not isinstance(value, str) or value not in allowed:
                raise ValueError(f"Options.{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
        elif value is not None or each.default is not None:
            object.__setattr__(options, each.name, each.metadata[DECLARED].check(name, value))


class Place(NamedTuple):
    """Where an option is. group: the class of its group; None if it is a field of Options."""

    group: type[Group] | None
    field: Field[Any]

    @property
    def declared(self) -> Declared:
        """Declaration of the option."""
        found: Declared = self.field.metadata[DECLARED]
        return found

    @property
    def path(self) -> str:
        """``"precision"``, ``"shapes.batch"``."""
        return f"{self.group.place}.{self.field.name}" if self.group else self.field.name

    @property
    def default(self) -> Any:
        """The default of the option."""
        return self.field.default

    def value(self, options: Any) -> Any:
        """Return the value of the option.

        Args:
            options: An object of the class of all options.
        """
        return getattr(getattr(options, self.group.place) if self.group else options, self.field.name)


@cache
def flat_names(kind: Any) -> Mapping[str, Place]:
    """Return all options of a class and of its groups by their flat names, in the order of their declarations.

    Args:
        kind: The class of all options.

    Raises:
        TypeError: A name is declared twice, or has no default.
    """
    found: dict[str, Place] = {}
    for own in fields(kind):
        group = own.type if isinstance(own.type, type) and issubclass(own.type, Group) else None
        for each in [own] if group is None else fields(group):  # type: ignore[arg-type]  # groups are dataclasses
            place = Place(group, each)
            name = place.declared.flat or each.name
            if name in found or each.default is MISSING:
                raise TypeError(f"{name!r} is declared twice, or has no default")
            found[name] = place
    return found


def require_defaults(options: Any, groups: Container[object], why: str) -> None:
    """Accept options that have the defaults in some groups.

    Args:
        options: An object of the class of all options.
        groups: Classes of groups; None stands for options without a group.
        why: The reason, for the message.

    Raises:
        ValueError: An option of these groups has another value.
    """
    kind: Any = type(options)
    for place in flat_names(kind).values():
        if place.group in groups and place.value(options) != place.default:
            raise ValueError(f"Options.{place.path} is for tflgpu.compile; {why}")


def grouped(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of a class of options, for values that are given by flat names.

    Args:
        kind: The class of all options.
        given: Values by flat name.

    Raises:
        KeyError: A name is unknown.
        TypeError: A value has a wrong type.
        ValueError: A value is not allowed.
    """
    own: dict[str, Any] = {}
    in_groups: dict[type[Group], dict[str, Any]] = {}
    for name, value in given.items():
        group, each = flat_names(kind)[name]
        values = own if group is None else in_groups.setdefault(group, {})
        values[each.name] = value
    return own | {group.place: group(**values) for group, values in in_groups.items()}
