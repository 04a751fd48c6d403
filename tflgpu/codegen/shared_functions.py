"""Functions whose texts differ in whole numbers only -> one function that takes these numbers as arguments.

Intel's compiler for CPUs takes 45 ms for a convolution, and networks repeat theirs in many sizes. A shared function is
compiled once; a call of it takes the compiler a millisecond.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

# Whole numbers that fit an int. What has to be a constant comes first: directives, indices and sizes of arrays,
# attributes, labels.
_NUMBER = re.compile(
    r"#[^\n]*|\[[^]\n]*\]|__attribute__\s*\(\([^\n]*?\)\)|case [^:\n]*:"
    r"|(?<![\w.])(?<!e[-+])(?P<number>0|[1-9]\d{0,8})(?![\w.])"
)

Column = tuple[str, ...]  # the numbers at one place in the texts of several functions


def share(functions: Mapping[str, tuple[tuple[str, ...], str]]) -> tuple[str, dict[str, str]]:
    """The text of shared functions, and the bodies that some of ``functions`` get in place of theirs: calls.

    functions: declarations of parameters, and the body, by name.
    """
    alike: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for name, (parameters, body) in functions.items():
        alike.setdefault((parameters, _NUMBER.sub(lambda m: "#" if m["number"] else m[0], body)), []).append(name)
    texts, calls = [], {}
    for (parameters, _), names in alike.items():
        if len(names) == 1:
            continue
        columns = list(zip(*(_numbers(functions[name][1]) for name in names), strict=True))
        sizes = {column: f"size{i}" for i, column in enumerate(dict.fromkeys(c for c in columns if len(set(c)) > 1))}
        body = _with_sizes(functions[names[0]][1], columns, sizes)
        shared = f"shared_{hashlib.blake2b(repr((parameters, body)).encode(), digest_size=6).hexdigest()}"
        declared = ", ".join((*parameters, *(f"int {size}" for size in sizes.values())))
        texts.append(f"static __attribute__((noinline)) void {shared}({declared}) {{\n{body}\n}}\n")
        given = [re.split(r"\W", declaration)[-1] for declaration in parameters]
        for i, name in enumerate(names):
            calls[name] = f"{shared}({', '.join((*given, *(column[i] for column in sizes)))});"
    return "".join(texts), calls


def _numbers(text: str) -> Iterator[str]:
    return (match["number"] for match in _NUMBER.finditer(text) if match["number"])


def _with_sizes(text: str, columns: Sequence[Column], sizes: Mapping[Column, str]) -> str:
    """The text with the names of ``sizes`` in place of numbers. columns: those of its numbers, in order."""
    rest = iter(columns)
    return _NUMBER.sub(lambda match: sizes.get(next(rest), match[0]) if match["number"] else match[0], text)
