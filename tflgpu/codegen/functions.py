"""Functions of OpenCL C as structures: their parameters, their statements, and the numbers among these.

A rendered body is read once, into pieces of text and the numbers between them. From then on text is only put
together, never taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflgpu.codegen.environment import AWAIT_INPUTS
from tflgpu.codegen.printed_numbers import MARK, TURNS
from tflgpu.target import ElementType


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


def body_of(rendered: str, *, takes_numbers: bool = True) -> Body:
    """Return the structure of rendered statements.

    Args:
        rendered: C between the braces of a function, with the marks of :mod:`tflgpu.codegen.printed_numbers`.
        takes_numbers: Whether its numbers may become variables.
    """
    pieces, numbers, are_turns, awaits = [""], list[str](), list[bool](), False
    for i, piece in enumerate(rendered.split(MARK)):
        number = piece.removeprefix(TURNS)
        awaits |= i % 2 == 1 and piece == AWAIT_INPUTS
        if i % 2 and piece != AWAIT_INPUTS and takes_numbers:
            numbers.append(number)
            are_turns.append(number != piece)
            pieces.append("")
        else:
            pieces[-1] += number
    return Body(tuple(pieces), tuple(numbers), awaits, tuple(are_turns))


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
    offsets, as not every device has arguments of 64 bits. takes_numbers: whether it may take numbers as arguments.
    """

    name: str
    pointers: tuple[Pointer, ...]
    body: Body
    workspace: int
    local_size: int
    fills_vectors: bool
    offset_type: str
    takes_numbers: bool = False

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
