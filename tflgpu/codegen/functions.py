"""Functions of OpenCL C as structures: their parameters, their statements, and the numbers among these.

A rendered body is read once, into pieces of text and the numbers between them. From then on text is only put
together, never taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tflgpu.codegen.environment import AWAIT_INPUTS
from tflgpu.target import ElementType

# Text whose numbers have to be constants: directives, strings, indices and sizes of arrays, attributes, labels.
_CONSTANT = r"#[^\n]*|\"[^\"\n]*\"|\[[^]\n]*\]|__attribute__\s*\(\([^\n]*?\)\)|case [^:\n]*:"

# Numbers without which code may be slower: divisors, and numbers by which compilers know neighbours, powers of two, and
# zeros.
_TELLING = r"[/%]=?\s*\d+(?![\w.])|(?<![\w.])(?:\d|1[0-6])(?![\w.])"

# Whole numbers that fit an int, and decimal ones that are floats.
_VARIABLE = r"(?<![\w.])(?<!e[-+])(?P<number>0|[1-9]\d{0,8}|\d+\.\d+(?:e[-+]?\d+)?f|\d+e[-+]?\d+f)(?![\w.])"

_NUMBER = re.compile(f"{_CONSTANT}|{_VARIABLE}")
_NUMBER_THAT_TELLS_LITTLE = re.compile(f"{_CONSTANT}|{_TELLING}|{_VARIABLE}")


@dataclass(frozen=True)
class Body:
    """The statements of a function.

    pieces: text, one piece more than there are numbers. numbers: ints and floats that may become variables. awaits:
    whether the function says from where on it reads what other kernels write. are_turns: of the numbers, whether each
    is in the head of a loop.
    """

    pieces: tuple[str, ...]
    numbers: tuple[str, ...]
    awaits: bool
    are_turns: tuple[bool, ...] = ()

    @property
    def text(self) -> str:
        """The statements as they were rendered."""
        return self.with_numbers(self.numbers)

    def with_numbers(self, numbers: Sequence[str]) -> str:
        """Return the statements with other numbers.

        Args:
            numbers: A text for each number of the body; names of variables are allowed.
        """
        between = (f"{number}{piece}" for number, piece in zip(numbers, self.pieces[1:], strict=True))
        return "".join((self.pieces[0], *between))


def read_body(text: str, *, divides_rarely: bool = True) -> Body:
    """Return the structure of rendered statements.

    Args:
        text: C between the braces of a function.
        divides_rarely: Whether divisors and small numbers may become variables, too.
    """
    pieces, numbers, are_turns, end = list[str](), list[str](), list[bool](), 0
    for match in (_NUMBER if divides_rarely else _NUMBER_THAT_TELLS_LITTLE).finditer(text):
        if match["number"]:
            pieces.append(text[end : match.start()])
            numbers.append(match["number"])
            line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            are_turns.append("for (" in line)
            end = match.end()
    return Body((*pieces, text[end:]), tuple(numbers), AWAIT_INPUTS in text, tuple(are_turns))


@dataclass(frozen=True)
class Pointer:
    """A pointer to memory of the device. restrict: whether compilers are told that nothing else accesses its memory."""

    name: str
    type: ElementType
    is_written: bool = False
    restrict: bool = False

    @property
    def plain_type(self) -> str:
        """Type of the pointer without a promise: to cast to."""
        return f"__global {'' if self.is_written else 'const '}{self.type} *"

    @property
    def declaration(self) -> str:
        """The pointer as a parameter of a function."""
        return f"{self.plain_type}{'restrict ' if self.restrict else ''}{self.name}"


@dataclass(frozen=True)
class Function:
    """A function that computes one tile, and the kernel that launches it; both need the prelude before them.

    pointers: its first parameters. body: what computes a tile. workspace: float4 elements of local memory. local_size:
    work-items of a work-group. fills_vectors: of :class:`tflgpu.kernels.kernel.Kernel`. offset_type: of pointers'
    offsets, as not every device has arguments of 64 bits. divides_rarely: whether it may take divisors as arguments.
    """

    name: str
    pointers: tuple[Pointer, ...]
    body: Body
    workspace: int
    local_size: int
    fills_vectors: bool
    offset_type: str
    divides_rarely: bool = False

    @property
    def source(self) -> str:
        """Both as text."""
        return self.tile() + self.wrapper

    def tile(self, *more: str) -> str:
        """Return the function as text.

        Args:
            *more: Declarations of further parameters.
        """
        declared = ", ".join((*declarations(self.pointers), *more))
        return f"void {self.name}_tile({declared}) {{\n{self.body.text}\n}}\n"

    @property
    def wrapper(self) -> str:
        """The kernel in which work-group i computes tile i, or tile o - i where the launch has a global offset o."""
        launch = ", ".join(f"{p.declaration}, {self.offset_type} {p.name}_offset" for p in self.pointers)
        passed = ", ".join(f"{p.name} + {p.name}_offset" for p in self.pointers)
        local = f"__local float4 workspace[{self.workspace}];\n  " if self.workspace else ""
        workspace = "workspace" if self.workspace else "(__local float4 *)0"
        tile = "(int)abs((int)get_global_offset(0) - (int)get_group_id(0))"
        hint = "__attribute__((vec_type_hint(float4)))\n" if self.fills_vectors else ""
        return (
            f"__kernel __attribute__((reqd_work_group_size({self.local_size}, 1, 1)))\n{hint}"
            f"void {self.name}({launch}) {{\n"
            f"  {local}{self.name}_tile({passed}, {tile}, {workspace});\n}}\n"
        )


def declarations(pointers: Sequence[Pointer]) -> tuple[str, ...]:
    """Return the parameters of a function that computes one tile.

    Args:
        pointers: Its arguments in device memory.
    """
    return (*(pointer.declaration for pointer in pointers), "int tile", "__local float4 *workspace")
