"""``tflgpu run``."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape

import tflgpu
from tflgpu.cli.arguments import AsJson, Mean, ModelPath, Std, with_options
from tflgpu.cli.commands.devices import device_facts
from tflgpu.cli.console import Listing, console, note, print_json
from tflgpu.cli.progress import compile_model
from tflgpu.evaluate.accuracy import real
from tflgpu.evaluate.evaluations import Detection, detections, detector_outputs
from tflgpu.inputs import InputReader, naming, read_labels
from tflgpu.model.tensor_info import TensorInfo


@dataclass(frozen=True)
class Score:
    """One class of a classifier's answer. row: place in the batch of what it is an answer to."""

    row: int
    index: int
    label: str | None
    score: float


@dataclass(frozen=True)
class Summary:
    """One output in real values. ``top``: of each row the best classes, best first, if rows are vectors; else empty."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    maximum: float | None
    top: tuple[Score, ...]


def summarize(info: TensorInfo, array: NDArray[Any], labels: Sequence[str], top: int, batch: int = 1) -> Summary:
    """labels: class names, for outputs with one element per class. batch: the size of a batched output's first axis."""
    values = real(array, info.quantization)
    rows = values if batch > 1 and array.shape[:1] == (batch,) else values[None]
    size = rows[0].size
    is_vector = size > 1 and max(rows.shape[1:]) == size
    named = labels if len(labels) == size else None
    scores = tuple(
        Score(number, i, named[i] if named else None, float(row[i]))
        for number, row in enumerate(rows.reshape(-1, size) if is_vector else ())
        for i in np.argsort(-row, kind="stable")[:top].tolist()
    )
    minimum, maximum = (float(values.min()), float(values.max())) if values.size else (None, None)
    return Summary(info.name, tuple(array.shape), array.dtype.name, minimum, maximum, scores)


def check_labels(path: Path, labels: Sequence[str], infos: Sequence[TensorInfo], batch: int = 1) -> None:
    """Raise ValueError if no output has an element, in each row, for each of the labels that ``path`` has."""
    sizes = {info.name: int(np.prod(info.shape)) // batch for info in infos}
    if len(labels) not in sizes.values():
        outputs = ", ".join(f"{name!r} has {size} elements" for name, size in sizes.items())
        raise ValueError(f"{path} has {len(labels)} labels, but output {outputs}")


def save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> list[Path]:
    """Write the arrays to one file, if its name ends in .npz, under their names; else to a folder."""
    return _save_in_one(path, arrays) if path.suffix == ".npz" else _save_in_folder(path, arrays)


def _save_in_one(path: Path, arrays: Mapping[str, NDArray[Any]]) -> list[Path]:
    """Save as numpy.savez does, to which no array may be given whose name is that of an argument."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return [path]


def _save_in_folder(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> list[Path]:
    """Each array as ``<position>_<name>.npy``, in a folder that is made if it is not there.

    Names are the model's: only their letters, digits, dots and dashes are used, so that none leads out of the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i}_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)[:100]}.npy" for i, name in enumerate(arrays)]
    for path, array in zip(paths, arrays.values(), strict=True):
        np.save(path, array, allow_pickle=False)
    return paths


@with_options()
def run_model(
    model: ModelPath,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="An image or a .npy file for each input, in order, or one .npz file for all; with --batch N "
            "and one input a file for each of the N.",
            show_default=False,
        ),
    ],
    options: tflgpu.Options,
    mean: Mean = None,
    std: Std = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="A text file, line n naming class n.", show_default="those packed into the model"),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes of a classifier's answer to print.")] = 5,
    output: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write outputs to this .npz file, or as .npy files to this folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a model once on images or arrays.

    Outputs that are vectors are read as a classifier's answer, and their best classes printed, with --batch those of
    each row; of others the range is. What a detector with TFLite_Detection_PostProcess finds is printed with its boxes.
    """
    with compile_model(model, options) as compiled:
        arrays = InputReader(model, compiled.inputs, mean=mean, std=std).read(inputs)
        batch = options.shapes.batch or 1
        names = read_labels(labels) if labels else _own_labels(model)
        detector = detector_outputs(compiled.report, compiled.outputs)
        if labels and not detector:
            check_labels(labels, names, compiled.outputs, batch)
        with naming(inputs):
            results = compiled.run(arrays)
        found = detections([results[name] for name in detector], names, top) if detector else ()
        summaries = [
            summarize(info, results[info.name], names, 0 if info.name in detector else top, batch)
            for info in compiled.outputs
        ]
        files = save(output, results) if output else []
        if as_json:
            print_json(
                {
                    "device": device_facts(compiled.device),
                    "precision": compiled.precision,
                    "mixed": asdict(compiled.report.mixed) if compiled.report.mixed else None,
                    "outputs": [asdict(s) for s in summaries],
                    "detections": [asdict(d) for d in found],
                    "files": files,
                }
            )
            return
    if compiled.report.mixed:
        note(compiled.report.mixed.summary)
    for summary in summaries:
        _print(summary)
    _print_detections(found)
    for file in files:
        note(f"wrote {file}")


def _own_labels(model: Path) -> list[str]:
    """Tools that write a model anew leave out its packed files; it runs nevertheless."""
    from tflgpu.model.metadata import labels_in_file  # only images have classes

    try:
        return labels_in_file(model.read_bytes())
    except tflgpu.ModelError as error:
        note(f"{model}: {error}; its classes are printed without labels")
        return []


def _print(summary: Summary) -> None:
    shape = "x".join(map(str, summary.shape)) or "scalar"
    extent = "empty" if summary.minimum is None else f"from {summary.minimum:.6g} to {summary.maximum:.6g}"
    console.print(f"[bold]{escape(summary.name)}[/]  {shape} {summary.dtype}, {extent}")
    if not summary.top:
        return
    labelled = [] if summary.top[0].label is None else ["label"]
    several = ["row"] if summary.top[-1].row else []
    listing = Listing(*several, "class", "score", *labelled, right=("row", "class", "score"))
    best = {s.row: s for s in reversed(summary.top)}
    for s in summary.top:
        row, label = [str(s.row)] * len(several), [] if s.label is None else [escape(s.label)]
        listing.add_row(*row, str(s.index), f"{s.score:.4f}", *label, style="green" if s is best[s.row] else "")
    console.print("", listing, "", sep="\n")


def _print_detections(found: Sequence[Detection]) -> None:
    if not found:
        return
    labelled = ["label"] if any(d.label is not None for d in found) else []
    listing = Listing("class", "score", *labelled, "top", "left", "bottom", "right", right=("class", "score"))
    for d in found:
        label = [escape(d.label or "")] if labelled else []
        listing.add_row(str(d.index), f"{d.score:.4f}", *label, *(f"{edge:.3f}" for edge in d.box))
    console.print("", listing, "", sep="\n")
