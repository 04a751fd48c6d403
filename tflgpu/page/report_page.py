"""A compiled model and its inputs -> the page, as HTML."""

from __future__ import annotations

import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from hashlib import sha256
from math import ceil, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import jinja2
from markupsafe import Markup
from numpy.typing import NDArray

from tflgpu.api import CompiledModel
from tflgpu.measure.device_model import planned_target, probe
from tflgpu.model.text import printable
from tflgpu.page import plots
from tflgpu.page.contents import Ceiling, Contents, KernelFacts, Piece, Setting, gather_sections
from tflgpu.page.graph_drawing import GraphDrawing, LanesDrawing, draw_graph, draw_lanes, sources_of
from tflgpu.page.plots import digits, dimensions, draw_arena, draw_roofline, duration, rate, share, size
from tflgpu.report.profile import Profile
from tflgpu.report.report import counted
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.target import Target
from tflgpu.target.probes import Probes
from tflgpu.version import __version__

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
            arenas=[(name, draw_arena(contents.pieces, canvas)) for name, canvas in plots.ARENA_CANVASES.items()],
            rooflines=[
                (name, draw_roofline(contents, colours, canvas)) for name, canvas in plots.ROOFLINE_CANVASES.items()
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


@dataclass(frozen=True)
class Ceilings:
    """bytes_per_second: of a copy between buffers that no cache can hold, reads and writes together.

    flops: operations a second by precision; in fp16 those of tensor cores, where the device has them. Without
        fp16_fast where it does not compute in half.
    """

    bytes_per_second: float
    flops: dict[str, float]


def measure_ceilings(session: Session) -> Ceilings:
    """Return the ceilings of a device by its probes, measured now.

    Args:
        session: The device.

    Raises:
        BuildError: A probe does not compile.
        DeviceError: A probe fails.
    """
    return ceilings_of(probe(session))


def ceilings_of(probes: Probes) -> Ceilings:
    """Return the ceilings of a device: bytes of memory a second, and operations a second by precision.

    Args:
        probes: Measurements of the device.
    """
    macs = {"fp32": probes.float_macs, "fp16": probes.matrix_macs or probes.float_macs}
    if probes.half_macs:
        macs["fp16_fast"] = probes.half_macs
    return Ceilings(probes.global_bytes, {precision: 2 * rate for precision, rate in macs.items()})


def make_page(
    name: str, data: bytes, compiled: CompiledModel, inputs: Sequence[NDArray[Any]], profile: Profile, runs: int
) -> str:
    """Return the HTML of a profile. The errors are those of :meth:`CompiledModel.run`.

    Args:
        name: The name of the model's file.
        data: The bytes of the file.
        compiled: Made of these bytes.
        inputs: The arrays with which it was profiled.
        profile: The times.
        runs: The number of runs of which times are the medians.
    """
    device, target = compiled.device, target_of(compiled)
    sections = gather_sections(data, compiled.options, target, compiled.report, profile)
    ceilings = measure_ceilings(open_session(device))
    on_matrix_units = device.matrix_units and target.precision == "fp16"
    kernels = [kernel for section in sections for piece in section.pieces for kernel in piece.kernels]
    contents = Contents(
        Setting(
            printable(name),
            len(data),
            device.name,
            device.platform,
            device.driver,
            compiled.precision,
            compiled.executor,
            __version__,
            runs,
            datetime.now().astimezone().isoformat(" ", "minutes"),
        ),
        compiled.report,
        sections,
        median(_seconds(compiled, inputs) for _ in range(runs)),
        Ceiling("copy", ceilings.bytes_per_second / 1e9),
        # A kernel may be faster than what was measured: compilers do not always see how to multiply at the full rate.
        max(
            Ceiling("tensor cores" if on_matrix_units else "multiply-add", ceilings.flops[target.precision] / 1e9),
            Ceiling("best kernel", max((k.gflops or 0.0 for k in kernels), default=0.0)),
            key=lambda ceiling: ceiling.rate,
        ),
    )
    return render_page(contents)


def target_of(compiled: CompiledModel) -> Target:
    """Return the target for which a model was planned: with the executor that was chosen.

    Args:
        compiled: An opened model.
    """
    return replace(planned_target(compiled.device, compiled.options), executor=compiled.executor)


def _seconds(compiled: CompiledModel, inputs: Sequence[NDArray[Any]]) -> float:
    start = time.perf_counter()
    compiled.run(inputs)
    return time.perf_counter() - start
