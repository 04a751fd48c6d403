"""Small faults of templates: bounds, indices, signs, zero points, barriers, types, orders of operands and of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.mutate.mutant import Mutant

# Where nothing is changed: comments, pragmas, and what only tells compilers how to optimize.
SKIPPED = re.compile(r"\{#.*?#\}|/\*.*?\*/|//[^\n]*|#(?:pragma|undef)[^\n]*|__attribute__[^\n]*", re.DOTALL)

SYMMETRIC = "f?min|f?max|fma|mad|dot|mul24"  # functions that do not tell their first two operands from one another

# A rule: its name, the regular expression that it finds, and the replacement.
RULES: tuple[tuple[str, str, str], ...] = (
    ("bound", r" <(?= )", " <="),
    ("bound", r" <=(?= )", " <"),
    ("bound", r" >(?= )", " >="),
    ("bound", r" >=(?= )", " >"),
    ("comparison", r" ==(?= )", " !="),
    ("comparison", r" !=(?= )", " =="),
    ("index", r"(?<=[\w)\]] )\+(?= )", "-"),
    ("sign", r"(?<=[\w)\]] )-(?= )", "+"),
    ("sign", r"(?<=[(=,] )-(?=\w)|(?<=\()-(?=\w)", ""),
    ("operator", r"(?<=[\w)\]] )\*(?= )", "+"),
    ("operator", r"(?<=[\w)\]] )%(?= )", "/"),
    ("step", r"(?<=[+-])= (?=\w)", "= 1 + "),
    ("and, or", r"&&", "||"),
    ("and, or", r"\|\|", "&&"),
    ("function", r"\bmin(?=\()", "max"),
    ("function", r"\bmax(?=\()", "min"),
    ("function", r"\bfmin(?=\()", "fmax"),
    ("function", r"\bfmax(?=\()", "fmin"),
    ("zero point", r"\b\w*zero\w*\b(?![\w(=])(?! =)", r"(\g<0> + 1)"),
    ("barrier", r"\bbarrier\([^;]*\);", ";"),
    ("flag", r"CLK_LOCAL_MEM_FENCE \| CLK_GLOBAL_MEM_FENCE", "CLK_LOCAL_MEM_FENCE"),
    ("flag", r"\btrue\b", "false"),
    ("flag", r"\bfalse\b", "true"),
    ("memory order", r"memory_order_(?:acquire|release|acq_rel)", "memory_order_relaxed"),
    ("type", r"\bconvert_int(?=\w*\()", "convert_char"),
    ("type", r"\bfloat(?=\d* \w+ =)", "half"),
    ("order of operands", rf"\b(?!(?:{SYMMETRIC})\b)(\w+)\((\w+), (\w+)(?=[,)])", r"\1(\3, \2"),
    ("branch", r"(?<=\{% if )([^%]+?)(?= %\})", r"not (\1)"),
    ("branch", r"(?<=\{% if )not ([^%]+?)(?= %\})", r"\1"),
)
NUMBER = re.compile(r"(?<![\w.'\"])\d+(?![\w.'\"])")


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """All mutants of a template."""
    skipped = [found.span() for found in SKIPPED.finditer(source)]

    def is_code(place: int) -> bool:
        return not any(begin <= place < end for begin, end in skipped)

    for rule, pattern, text in RULES:
        for found in filter(lambda found: is_code(found.start()), re.finditer(pattern, source)):
            changed = found.expand(text)
            if changed != found[0]:
                yield Mutant(file, *found.span(), changed, rule)
    for found in filter(lambda found: is_code(found.start()), NUMBER.finditer(source)):
        yield Mutant(file, *found.span(), str(int(found[0]) + 1), "number")
