"""Functions that differ in numbers only -> one function that takes these numbers as arguments.

Intel's compiler for CPUs takes 45 ms for a convolution, and networks repeat theirs in many sizes. A shared function is
compiled once; a call of it takes the compiler a millisecond.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from tflgpu.codegen.functions import Body, Pointer, declarations, read_body

Column = tuple[str, ...]  # the numbers at one place of several functions


def share(functions: Mapping[str, tuple[tuple[Pointer, ...], Body]]) -> tuple[str, dict[str, Body]]:
    """The text of shared functions, and the bodies that some of ``functions`` get in place of theirs: calls.

    functions: parameters and body, by name.
    """
    alike: dict[tuple[tuple[Pointer, ...], tuple[str, ...], Column], list[str]] = {}
    for name, (pointers, body) in functions.items():
        alike.setdefault((pointers, body.pieces, tuple(map(_type, body.numbers))), []).append(name)
    texts, calls = [], {}
    for (pointers, _, _), names in alike.items():
        if len(names) == 1:
            continue
        first = functions[names[0]][1]
        columns = list(zip(*(functions[name][1].numbers for name in names), strict=True))
        sizes = {column: f"size{i}" for i, column in enumerate(dict.fromkeys(c for c in columns if len(set(c)) > 1))}
        text = first.with_numbers([sizes.get(column, column[0]) for column in columns])
        parameters = declarations(pointers)
        shared = f"shared_{hashlib.blake2b(repr((parameters, text)).encode(), digest_size=6).hexdigest()}"
        declared = ", ".join((*parameters, *(f"{_type(column[0])} {size}" for column, size in sizes.items())))
        texts.append(f"static __attribute__((noinline)) void {shared}({declared}) {{\n{text}\n}}\n")
        for i, name in enumerate(names):
            calls[name] = _call(shared, pointers, [column[i] for column in sizes])
    return "".join(texts), calls


def _type(number: str) -> str:
    return "float" if number.endswith("f") else "int"


def _call(shared: str, pointers: Sequence[Pointer], sizes: Sequence[str]) -> Body:
    given = (*(pointer.name for pointer in pointers), "tile", "workspace", *sizes)
    return read_body(f"{shared}({', '.join(given)});")
