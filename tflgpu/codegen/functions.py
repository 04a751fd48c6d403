"""Functions of OpenCL C as structures, and functions that differ in numbers only, as one with arguments.

A rendered body is read once, into pieces of text and the numbers between them. From then on text is only put
together, never taken apart.

Intel's compiler for CPUs takes 45 ms for a convolution, and networks repeat theirs in many sizes. A shared function is
compiled once; a call of it takes the compiler a millisecond. In a persistent kernel, layers that differ in their grids
or sizes are launches of one function, whose numbers come from a table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tflgpu.codegen.environment import AWAIT_INPUTS, MARK, TURNS
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
        rendered: C between the braces of a function, with the marks of :mod:`tflgpu.codegen.environment`.
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
