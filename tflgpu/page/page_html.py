"""Contents -> HTML. What the model's author wrote is escaped: by the templates' autoescape, and in JSON by tojson."""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from tflgpu.page.contents import Contents, KernelFacts, Piece
from tflgpu.page.drawing import arena_drawing, roofline_drawing
from tflgpu.page.drawing.arena_drawing import draw_arena
from tflgpu.page.drawing.axes import digits, dimensions, duration, rate, share, size
from tflgpu.page.drawing.graph_drawing import GraphDrawing, draw_graph, sources_of
from tflgpu.page.drawing.lanes import LanesDrawing, draw_lanes
from tflgpu.page.drawing.roofline_drawing import draw_roofline
from tflgpu.report.report import counted

TEMPLATES = Path(__file__).parent / "templates"

COLOURS = 6  # operator types that have a colour of their own; all others share one
ROOFLINE_COLOURS = 3  # of them for types that the roofline shows, however little time they take
HEATS = 7  # steps of the colours that stand for time
SLOWEST = 6  # kernels in the summary


@dataclass(frozen=True)
class Group:
    """An operator type. colour: its number; :data:`COLOURS` for types that share one.

    multiplies: whether one of its kernels has a place in the roofline.
    """

    name: str
    colour: int
    kernels: int
    seconds: float
    multiplies: bool


@dataclass(frozen=True)
class PieceDrawing:
    """inputs, outputs: what to call what comes from outside of the piece, and what leaves it."""

    piece: Piece
    inputs: str
    outputs: str
    graph: GraphDrawing
    lanes: LanesDrawing


def render_page(contents: Contents) -> str:
    """Return the whole file."""
    kernels = contents.kernels
    groups = _groups(kernels)
    colours = {g.name: g.colour for g in groups if g.colour < COLOURS}
    script = _text("page.js")
    measured = [k for k in kernels if k.seconds is not None]
    slowest = max((k.seconds or 0.0 for k in measured), default=0.0)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            contents=contents,
            setting=contents.setting,
            report=contents.report,
            kernels=kernels,
            groups=groups,
            colour=lambda kernel: colours.get(kernel.group, COLOURS),
            heat=lambda kernel: heat(kernel.seconds, slowest),
            heat_bounds=[slowest * (step / HEATS) ** 2 for step in range(HEATS + 1)],
            slowest=sorted(measured, key=lambda k: -(k.seconds or 0.0))[:SLOWEST],
            graphs=[[_drawn(piece, section.call) for piece in section.pieces] for section in contents.sections],
            arenas=[(name, draw_arena(contents.pieces, canvas)) for name, canvas in arena_drawing.CANVASES.items()],
            rooflines=[
                (name, draw_roofline(contents, colours, canvas)) for name, canvas in roofline_drawing.CANVASES.items()
            ],
            details={k.number: _detail(contents, k) for k in kernels},
            style=Markup(_text("page.css")),
            script=Markup(script),
            script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        )
    )


def heat(seconds: float | None, slowest: float) -> int:
    """Return the bucket of a heat map for a kernel's time, on a scale of square roots.

    Args:
        seconds: None if the kernel was not measured, whose bucket is 0.
        slowest: The seconds of the slowest kernel.
    """
    return min(HEATS, ceil(HEATS * sqrt(seconds / slowest))) if seconds and slowest else 0


def _groups(kernels: Sequence[KernelFacts]) -> list[Group]:
    """Return the operator types, those that take the longest first."""
    members: defaultdict[str, list[KernelFacts]] = defaultdict(list)
    for k in kernels:
        if k.seconds is not None:
            members[k.group].append(k)
    found = [
        Group(name, COLOURS, len(each), sum(k.seconds or 0.0 for k in each), any(k.gflops for k in each))
        for name, each in members.items()
    ]
    found.sort(key=lambda group: -group.seconds)
    roofline = [g.name for g in found if g.multiplies][:ROOFLINE_COLOURS]
    names = [*roofline, *(g.name for g in found if g.name not in roofline)][:COLOURS]
    colours = {name: colour for colour, name in enumerate(names)}
    return [replace(group, colour=colours.get(group.name, COLOURS)) for group in found]


def _drawn(piece: Piece, call: str) -> PieceDrawing:
    sides = ("state", "next state") if call == "WHILE" else ("inputs", "outputs")
    return PieceDrawing(piece, *sides, draw_graph(piece, *sides), draw_lanes(sources_of(piece)))


def _detail(contents: Contents, kernel: KernelFacts) -> dict[str, Any]:
    """Return what the panel says of a kernel."""
    facts = {
        "Time": "the run did not take this branch" if kernel.seconds is None else duration(kernel.seconds),
        "Share": f"{share(kernel.seconds or 0.0, contents.seconds)} of the time",
        "Arithmetic": rate(kernel.gflops, "FLOP") if kernel.gflops else "",
        "Bandwidth": rate(kernel.gb_per_second, "B") if kernel.gb_per_second else "",
        "Intensity": f"{digits(kernel.intensity)} FLOP/byte" if kernel.intensity else "",
        "Roofline": _roofline_share(contents, kernel),
        "Bytes moved": size(kernel.bytes),
        "Multiply-adds": f"{kernel.macs:,}" if kernel.macs else "",
        "Result": dimensions(kernel.shape),
        "Template": kernel.template,
        "Tiles": f"{kernel.groups:,} of {counted(kernel.local_size, 'work-item')}",
        "Barrier interval": str(kernel.level),
        "Function": kernel.function,
    }
    return {
        "title": kernel.title,
        "facts": [(name, value) for name, value in facts.items() if value],
        "operators": [(o.index, o.code, ", ".join(o.outputs)) for o in kernel.operators],
        "steps": kernel.steps,
        "operands": [
            (o.name, f"{o.type} {dimensions(o.shape)}", size(o.bytes), _place(o.place, o.offset), o.tensor)
            for o in kernel.operands
        ],
    }


def _place(place: str, offset: int | None) -> str:
    return place if offset is None or place != "arena" else f"arena + {offset:,}"


def roofline_part(contents: Contents, kernel: KernelFacts) -> float:
    """Return how much of what its bytes and multiplications allow a kernel reaches; 0 if it was not measured.

    With data in a cache it can be more than memory allows.

    Args:
        contents: The device's limits.
        kernel: The kernel's bytes, multiplications and time.
    """
    if not kernel.seconds:
        return 0.0
    least = 1e-9 * max(kernel.bytes / contents.bandwidth.rate, 2 * kernel.macs / contents.arithmetic.rate)
    return least / kernel.seconds


def _roofline_share(contents: Contents, kernel: KernelFacts) -> str:
    part = roofline_part(contents, kernel)
    return ">100%" if part > 1 else share(part, 1.0) if part else ""


@cache
def _environment() -> jinja2.Environment:
    """Return an environment of its own, which escapes everything; that of the kernels' templates escapes nothing."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": counted,
        "digits": digits,
        "dimensions": dimensions,
        "duration": duration,
        "rate": rate,
        "share": share,
        "size": size,
    }
    environment.globals |= {"roofline_part": roofline_part, "roofline_share": _roofline_share}
    return environment


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
