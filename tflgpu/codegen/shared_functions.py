"""Functions that differ in numbers only -> one function that takes these numbers as arguments.

Intel's compiler for CPUs takes 45 ms for a convolution, and networks repeat theirs in many sizes. A shared function is
compiled once; a call of it takes the compiler a millisecond. In a persistent kernel, layers that differ in their grids
or sizes are launches of one function, whose numbers come from a table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tflgpu.codegen.functions import Body, Function, Pointer, declarations

Column = tuple[str, ...]  # the numbers at one place of several functions


def share(functions: Mapping[str, tuple[tuple[Pointer, ...], Body]]) -> tuple[str, dict[str, Body]]:
    """Let functions that differ in numbers only share one function.

    Args:
        functions: Parameters and body, by name.

    Returns:
        The text of the shared functions, and by name the bodies of those that call one now.
    """
    alike: dict[tuple[tuple[Pointer, ...], tuple[str, ...], Column], list[str]] = {}
    for name, (pointers, body) in functions.items():
        alike.setdefault((pointers, body.pieces, tuple(map(_type, body.numbers))), []).append(name)
    texts, calls = [], {}
    for (pointers, _, _), names in alike.items():
        if len(names) == 1:
            continue
        text, sizes = _joined([functions[name][1] for name in names])
        parameters = declarations(pointers)
        shared = f"shared_{hashlib.blake2b(repr((parameters, text)).encode(), digest_size=6).hexdigest()}"
        declared = ", ".join((*parameters, *(f"{_type(column[0])} {size}" for column, size in sizes.items())))
        texts.append(f"static __attribute__((noinline)) void {shared}({declared}) {{\n{text}\n}}\n")
        for i, name in enumerate(names):
            calls[name] = _call(shared, pointers, [column[i] for column in sizes])
    return "".join(texts), calls


def _joined(bodies: Sequence[Body]) -> tuple[str, dict[Column, str]]:
    """Return the text of bodies that differ in numbers only, with names for these, and the names by their numbers."""
    columns = list(zip(*(body.numbers for body in bodies), strict=True))
    names = {column: f"size{i}" for i, column in enumerate(dict.fromkeys(c for c in columns if len(set(c)) > 1))}
    return bodies[0].with_numbers([names.get(column, column[0]) for column in columns]), names


@dataclass(frozen=True)
class Variant:
    """How a function is called: a function that others may be, too, and the numbers that make it this one.

    Attributes:
        function: What is compiled.
        names: Of the numbers, parameters after all others.
        numbers: Literals of C, those of :attr:`names`.
    """

    function: Function
    names: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def declared(self) -> tuple[str, ...]:
        """The parameters for numbers."""
        return tuple(f"{_type(number)} {name}" for name, number in zip(self.names, self.numbers, strict=True))


def variants(functions: Sequence[Function]) -> dict[str, Variant]:
    """Return each function as a variant of a shared one, by its name.

    Functions that differ in the turns of a loop are different ones, as are all that may divide for each element.

    Args:
        functions: Those of a program.
    """
    alike: dict[object, list[Function]] = {}
    for function in functions:
        body, kind = function.body, replace(function, name="", body=Body((), (), function.body.awaits))
        known = tuple(n if n_turns else _type(n) for n, n_turns in zip(body.numbers, body.are_turns, strict=True))
        key = (kind, body.pieces, known) if function.takes_numbers else function.name
        alike.setdefault(key, []).append(function)
    found: dict[str, Variant] = {}
    for same in alike.values():
        text, names = _joined([function.body for function in same])
        shared = replace(same[0], body=Body((text,), (), same[0].body.awaits)) if names else same[0]
        for i, function in enumerate(same):
            found[function.name] = Variant(shared, tuple(names.values()), tuple(column[i] for column in names))
    return found


def _type(number: str) -> str:
    return "float" if number.endswith("f") else "int"


def _call(shared: str, pointers: Sequence[Pointer], sizes: Sequence[str]) -> Body:
    given = (*(pointer.name for pointer in pointers), "tile", "workspace", *sizes)
    return Body((f"{shared}({', '.join(given)});",), (), awaits=False)
