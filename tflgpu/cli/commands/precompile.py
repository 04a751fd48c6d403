"""``tflgpu precompile-cache``: compile models ahead of their first use, and prove that they start from the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import typer
from rich.filesize import decimal
from rich.markup import escape

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.artifact import serializer
from tflgpu.artifact.cache.bundle import Sign, Written, signer
from tflgpu.artifact.cache.disk_cache import pack
from tflgpu.cli.arguments import AsJson, with_options
from tflgpu.cli.console import REPORTED, Listing, console, message_of, note, print_error, print_json, print_warning
from tflgpu.cli.own_processes import end_processes, in_own_process
from tflgpu.cli.progress import display
from tflgpu.cli.tables import start_kind
from tflgpu.measure.device_model import planned_target
from tflgpu.model.model_source import ModelContent

T = TypeVar("T")

# Version of the JSON, which docs/tools/inspect.md describes.
FORMAT = 1


@dataclass(frozen=True)
class Start:
    """One compilation, and what the cache has of it. bytes: None if the cache did not keep it."""

    device: str
    precision: str
    kernels: int
    entry: str
    bytes: int | None
    cold: bool
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """Result for one model. cold_seconds is None if the cache had it already; error is None if all went well."""

    model: Path
    device: str | None = None
    precision: str | None = None
    kernels: int | None = None
    entry: str | None = None
    bytes: int | None = None
    cold_seconds: float | None = None
    warm_seconds: float | None = None
    warnings: tuple[str, ...] = ()
    error: str | None = None


@with_options("device", "precision", "tuning")
def precompile_models(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help=".tflite files.", show_default=False)],
    options: tflgpu.Options,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The cache to fill.", show_default="TFLGPU_CACHE_DIR, or the platform's cache directory"
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Models compiled at a time, each in its own process.")] = 1,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write these models into one read-only file.", show_default=False),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(metavar="KEY", help="Sign it with this Ed25519 private key, a PEM file.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile models into the cache, so that their first start is already a warm one.

    Each model is compiled in a new process, then loaded and run by another one that may not compile anything. A bundle
    is proved in the same way, from the bundle alone; it is not written if a model failed. Use it with --cache-dir FILE,
    or CacheFiles(path=[FILE, ...]) in Python; its bundle_digest or bundle_key accept no other.

    Exit code: 0 if every model was proved, else 1.
    """
    options = replace(options, cache_files=tflgpu.CacheFiles(path=cache_dir))
    if sign is not None and bundle is None:
        raise ValueError("--sign is for a bundle; name one with --bundle FILE")
    signature, key = (None, None) if sign is None else signer(sign)
    outcomes = _in_parallel(
        models, jobs, "compiling", lambda model: model.name, lambda model: _precompile(model, options)
    )
    written = None
    if bundle is not None and all(o.error is None for o in outcomes):
        written = _pack(bundle, options, [o.entry for o in outcomes if o.entry is not None], signature)
        packed = replace(
            options, cache_files=tflgpu.CacheFiles(path=[bundle], bundle_digest=written.digest, bundle_key=key)
        )
        outcomes = _in_parallel(
            outcomes, jobs, "reading the bundle", lambda o: o.model.name, lambda o: _prove(o, packed)
        )
    if as_json:
        shipped = None if written is None else {"file": bundle, **written._asdict(), "key": key}
        print_json({"format": FORMAT, "models": [asdict(o) for o in outcomes], "bundle": shipped})
    else:
        _print(outcomes)
        if written is not None:
            note(f"wrote {bundle}, {decimal(written.bytes)}")
            console.print(f"bundle_digest {written.digest}", markup=False, soft_wrap=True)
            if key is not None:
                console.print(f"bundle_key    {key}", markup=False, soft_wrap=True)
    for o in outcomes:
        for warning in dict.fromkeys(o.warnings):
            print_warning(f"{o.model}: {warning}")
    failed = [(str(o.model), o.error) for o in outcomes if o.error is not None]
    for model_name, error in failed:
        print_error(error if model_name in error else f"{model_name}: {error}")
    if failed:
        if len(outcomes) > 1:
            note(f"{len(failed)} of {len(outcomes)} models failed")
        raise typer.Exit(1)


def start_and_run(model: Path, options: tflgpu.Options) -> Start:
    """Compile a model and run it once on zeros. Called in a process of its own."""
    content = ModelContent(model)
    with CompiledModel(content, options) as compiled:
        compiled.run([np.zeros(info.shape, info.dtype) for info in compiled.inputs])
        cache = serializer.open_cache(options)
        assert cache is not None
        key = serializer.model_key(content, options, compiled.device.identity, planned_target(compiled.device, options))
        sizes = (e.bytes for place in cache.places for e in place.entries() if e.name == key.name)
        return Start(
            device=compiled.device.name,
            precision=compiled.precision,
            kernels=compiled.report.kernels or 0,
            entry=key.name,
            bytes=next(sizes, None),
            cold=start_kind(compiled) == "cold",
            seconds=sum(compiled.seconds.values()),
        )


def _precompile(model: Path, options: tflgpu.Options) -> Outcome:
    try:
        answer = in_own_process(start_and_run, model, options)
    except REPORTED as error:
        return Outcome(model, error=message_of(error))
    start = answer.value
    outcome = Outcome(
        model,
        start.device,
        start.precision,
        start.kernels,
        start.entry,
        start.bytes,
        cold_seconds=start.seconds if start.cold else None,
        warnings=answer.warnings,
    )
    return _prove(outcome, options)


def _prove(outcome: Outcome, options: tflgpu.Options) -> Outcome:
    """Return the outcome with the seconds of a start that may not compile, or with the error that it met."""
    try:
        answer = in_own_process(start_and_run, outcome.model, replace(options, cache="require"))
    except REPORTED as error:
        return replace(outcome, error=f"compiled, but cannot be loaded: {message_of(error)}")
    return replace(outcome, warm_seconds=answer.value.seconds)


def _pack(bundle: Path, options: tflgpu.Options, names: Sequence[str], sign: Sign | None) -> Written:
    """Write entries of the cache into a bundle. Raises OSError."""
    cache = serializer.open_cache(options)
    assert cache is not None
    # The probes of the device are needed to find these entries.
    measured = [e.name for place in cache.places for e in place.entries() if e.name.startswith("probes/")]
    try:
        return pack(cache, bundle, [*names, *measured], sign)
    except OSError as error:  # about the file under its temporary name
        raise OSError(error.errno, error.strerror, str(bundle)) from error


def _in_parallel(
    items: Sequence[T], jobs: int, title: str, name: Callable[[T], str], work: Callable[[T], Outcome]
) -> list[Outcome]:
    """``work`` of every item in their order, ``jobs`` at a time, with a line for each that is under way."""

    def watched(item: T) -> Outcome:
        with shown.task(name(item)):
            return work(item)

    with display() as shown, shown.task(title, len(items)) as step:
        pool = ThreadPoolExecutor(jobs)
        futures: list[Future[Outcome]] = [pool.submit(watched, item) for item in items]
        try:
            for _ in as_completed(futures):
                step()
        except BaseException:  # Ctrl-C: do not begin what has not begun
            pool.shutdown(wait=False, cancel_futures=True)
            end_processes()
            raise
        pool.shutdown()
        return [future.result() for future in futures]


def _print(outcomes: Sequence[Outcome]) -> None:
    numbers = ("kernels", "on disk", "cold, s", "warm, s")
    places = {f"{o.device}, {o.precision}" for o in outcomes if o.device}
    listing = Listing("model", *numbers, "", right=numbers, title=", ".join(places))
    for o in outcomes:
        listing.add_row(
            escape(o.model.name),
            "" if o.kernels is None else str(o.kernels),
            "" if o.bytes is None else decimal(o.bytes),
            _seconds(o.cold_seconds),
            _seconds(o.warm_seconds),
            "[green]proved[/]" if o.error is None else "[red]failed[/]",
        )
    console.print(listing)
    if any(o.cold_seconds is None and o.error is None for o in outcomes):
        console.print("models without a cold time were in the cache already", style="dim")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
