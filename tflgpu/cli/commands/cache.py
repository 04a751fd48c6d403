"""``tflgpu cache``: list, check and empty the cache of compiled models."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.markup import escape

from tflgpu.artifact.cache import Cache, default_directory
from tflgpu.artifact.cache.bundle import Bundle
from tflgpu.artifact.cache.directory import expanded
from tflgpu.artifact.cache.disk_cache import Finding, evict, survey
from tflgpu.artifact.cache.key import FORMAT_FOLDER
from tflgpu.artifact.cache.payload import UnreadableError
from tflgpu.artifact.cache.store import Entry
from tflgpu.cli.arguments import AsJson, CacheDirs
from tflgpu.cli.console import Listing, console, print_json
from tflgpu.cli.usage import as_verb
from tflgpu.target import precision_of

# Version of the JSON, which docs/tools/inspect.md describes.
FORMAT = 1

SECONDS_PER_DAY = 86_400

# Heading of the column with what is wrong.
STATE = "state"

# Decimal and binary multiples of a byte.
UNITS: dict[str, int] = {"": 1, "b": 1} | {
    p + u: b**n for u, b in (("b", 1000), ("ib", 1024)) for n, p in enumerate("kmgt", 1)
}

cache_app = typer.Typer(no_args_is_help=True, help="List, check and empty the cache of compiled models.")


@cache_app.command("path")
@as_verb
def print_path(as_json: AsJson = False) -> None:
    """Print the directory that is used by default: TFLGPU_CACHE_DIR, or the platform's cache directory."""
    path = default_directory()
    if as_json:
        print_json({"format": FORMAT, "path": path})
    else:
        console.out(path, highlight=False)


@cache_app.command("ls")
@as_verb
def list_entries(cache_dir: CacheDirs = None, as_json: AsJson = False) -> None:
    """List what the cache holds, the last used first. Every entry is read, and its checksum looked at."""
    found = sorted(survey(_open(cache_dir)), key=lambda f: f.entry.used, reverse=True)
    if as_json:
        print_json({"format": FORMAT, "entries": [_as_dict(f) for f in found], "bytes": _volume(found)})
        return
    if found:
        console.print(_listing(found), "", sep="\n")
    console.print(f"{_counted(found)}, {decimal(_volume(found))}")


@cache_app.command("verify")
@as_verb
def verify_entries(cache_dir: CacheDirs = None, as_json: AsJson = False) -> None:
    """Check every entry. Exit code: 0 if all are sound, else 1."""
    found = survey(_open(cache_dir))
    damaged = [f for f in found if f.fault is not None]
    if as_json:
        print_json({"format": FORMAT, "checked": len(found), "damaged": [_as_dict(f) for f in damaged]})
    elif damaged:
        for finding in damaged:
            console.print(f"{_location(finding.entry)} {finding.fault}", markup=False, soft_wrap=True)
        console.print(
            f"\n{len(damaged)} of {_counted(found)} must not be used, and will not be. A model that needs one of them "
            "is compiled again, and its entry replaced. To be rid of them now, delete these files."
        )
    else:
        console.print(f"{_counted(found)}, all sound")
    if damaged:
        raise typer.Exit(1)


@cache_app.command("evict")
@as_verb
def evict_entries(
    everything: Annotated[bool, typer.Option("--all", help="Delete all entries.")] = False,
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Only those of this model, as `ls` prints it.", show_default=False),
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Only those unused for that many days.", show_default=False),
    ] = None,
    to_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Only as many, the longest unused first, as leave this: 500MB, 2GiB, ...",
            show_default=False,
        ),
    ] = None,
    cache_dir: CacheDirs = None,
    as_json: AsJson = False,
) -> None:
    """Delete entries of the cache's directories; bundles are left alone.

    At least one option says which; several narrow the choice. Processes that have an entry open keep it.
    """
    narrowed = (token, older_than, to_size) != (None, None, None)
    if everything == narrowed:
        raise ValueError("give either --all, or one or more of --token, --older-than and --to-size")
    removed = evict(
        _open(cache_dir),
        token=None if token is None else _token(token),
        unused_seconds=(older_than or 0.0) * SECONDS_PER_DAY,
        limit=None if to_size is None else parse_size(to_size),
    )
    if as_json:
        entries = [{"file": _location(e), "bytes": e.bytes, "used": _iso(e.used)} for e in removed]
        print_json({"format": FORMAT, "removed": entries, "bytes": sum(e.bytes for e in removed)})
        return
    for entry in removed:
        console.print(f"removed {_location(entry)}, {decimal(entry.bytes)}", markup=False, soft_wrap=True)
    console.print(f"{_counted(removed)} removed, {decimal(sum(e.bytes for e in removed))} freed")


def parse_size(text: str) -> int:
    """Bytes of ``"500MB"``, ``"2 GiB"`` or ``"1048576"``. Raises ValueError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in UNITS:
        raise ValueError(f"{text!r} is no size; give a number of bytes, or one with a unit: 500MB, 2GiB")
    return round(float(found[1]) * UNITS[found[2]])


def _token(text: str) -> int:
    if not re.fullmatch(r"[0-9a-fA-F]{16}", text):
        raise ValueError(f"{text!r} is no token; `tflgpu cache ls` prints them, 16 hexadecimal digits each")
    return int(text, 16)


def _open(places: Sequence[Path] | None) -> Cache:
    """Return the cache at these places. Raises OSError for a place that was named and is not there, ValueError for no
    bundle.

    What a compilation would do without is an error here: it was asked for.
    """
    named = None if places is None else [expanded(place) for place in places]
    for place in named or ():
        place.stat()
        if place.is_file():
            try:
                Bundle(place)
            except UnreadableError as error:
                raise ValueError(f"{place} {error}") from error
    return Cache(named, writable=False)


def _listing(findings: Sequence[Finding]) -> Listing:
    """States only if one is not sound, devices only if there are several: 80 columns have no room for all."""
    states = [STATE] * any(f.fault is not None for f in findings)
    known = {str(f.key["device"]) for f in findings if f.key and "device" in f.key}
    devices = ["device"] * (len(known) > 1)
    numbers = ("token", "bytes", "last used")
    columns = ("entry", "token", *devices, "precision", "bytes", "last used", *states)
    result = Listing(*columns, right=numbers, prose=states, title=None if devices else "".join(known))
    for f in findings:
        facts = (f.model or f"({_kind(f.entry)})", *(str((f.key or {}).get(name, "")) for name in ("token", *devices)))
        state = "sound" if f.fault is None else f"[red]{escape(f.fault)}[/]"
        volume = decimal(f.entry.bytes), _age(f.entry.used)
        result.add_row(*map(escape, facts), _precision(f) or "", *volume, *(state for _ in states))
    return result


def _precision(finding: Finding) -> str | None:
    """Return the precision of a compiled model; None for all other entries."""
    try:
        target = (finding.key or {})["options"]["target"]
        return precision_of(target["storage"], target["arithmetic"])
    except (KeyError, TypeError):
        return None


def _as_dict(finding: Finding) -> dict[str, Any]:
    entry = finding.entry
    facts = {"file": _location(entry), "kind": _kind(entry), "bytes": entry.bytes, "used": _iso(entry.used)}
    names = ("token", "platform", "device", "driver", "tflgpu")
    facts |= {"model": finding.model, "precision": _precision(finding)}
    return facts | {name: (finding.key or {}).get(name) for name in names} | {"fault": finding.fault}


def _location(entry: Entry) -> str:
    return f"{entry.place}/{FORMAT_FOLDER}/{entry.name}"


def _kind(entry: Entry) -> str:
    """``"model"``, ``"kernel"`` and so on: its folder, without the s."""
    return entry.name.partition("/")[0].removesuffix("s")


def _volume(findings: Iterable[Finding]) -> int:
    return sum(f.entry.bytes for f in findings)


def _counted(items: Sequence[object]) -> str:
    return "1 entry" if len(items) == 1 else f"{len(items)} entries"


def _iso(used: float) -> str | None:
    """Local time with its offset; None in a bundle, which does not know."""
    return datetime.fromtimestamp(used).astimezone().isoformat(timespec="seconds") if used else None


def _age(used: float) -> str:
    if not used:
        return ""
    seconds = max(0.0, time.time() - used)
    for unit, length in (("day", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' * (unit == 'day' and count > 1)} ago"
    return "now"
