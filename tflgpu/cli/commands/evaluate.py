"""``tflgpu evaluate``: TFLite's evaluation tools, for the device and for LiteRT's CPU at once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import tflgpu
from tflgpu.artifact.cache import content_hash, default_directory
from tflgpu.artifact.cache.directory import make_private
from tflgpu.cli.arguments import Address, AsJson, Mean, ModelPath, Std, Workers, naming_extras, with_options
from tflgpu.cli.console import Listing, console, note, print_json
from tflgpu.cli.differences import OutputDiff, Tolerance, default_tolerance, print_errors, print_verdict
from tflgpu.cli.measurement import Latency
from tflgpu.cli.progress import progress
from tflgpu.cli.usage import as_verb
from tflgpu.errors import CacheWarning
from tflgpu.evaluate.evaluations import (
    Annotations,
    Classification,
    Difference,
    ObjectDetection,
    Precision,
    deviations,
    labelled_images,
    top_k_accuracies,
)
from tflgpu.evaluate.task import DEVICE, LITERT, Engines, Row, StateFile, Task, Workplace, in_this_process, key_of
from tflgpu.inputs import input_files, read_labels


@dataclass(frozen=True)
class Evaluated:
    """A row for each file, in the files' order, and with what they were computed."""

    rows: list[Row]
    engines: Engines


@contextmanager
def evaluated(
    task: Task, files: Sequence[Path], state: Path | None, workers: int = 1, address: str | None = None
) -> Iterator[Evaluated]:
    """Every file through the model. The state file is removed if nothing is raised while this is open.

    state: None for a file in the cache's directory, which belongs to this evaluation by its name; without that
    directory an interrupt loses what was done. workers, address: several processes, or those of a cluster of Ray.
    Raises OSError and ValueError as :class:`tflgpu.evaluate.task.Worker` and :class:`StateFile`, and ValueError
    without a file.
    """
    if not files:
        raise ValueError("no file is left to evaluate")
    with ExitStack() as stack:
        with progress(f"starting {task.model.name}"):
            workplace = stack.enter_context(_workplace(task, workers, address))
        kept = _state_file(state, workplace.engines.identity)
        rows = _rows(task, workplace, files, kept)
    yield Evaluated(rows, workplace.engines)
    if kept is not None:
        kept.remove()


def _workplace(task: Task, workers: int, address: str | None) -> AbstractContextManager[Workplace]:
    """Return this process, unless several workers are asked for, or a cluster of Ray."""
    if workers == 1 and address is None:
        return in_this_process(task)
    with naming_extras():
        from tflgpu.batch.on_ray import on_workers
    return on_workers(task, workers, address)


def _rows(task: Task, workplace: Workplace, files: Sequence[Path], state: StateFile | None) -> list[Row]:
    keys = [key_of(file) for file in files]
    rows = dict(state.rows) if state else {}
    missing = [file for file, key in zip(files, keys, strict=True) if key not in rows]
    done = len(files) - len(missing)
    with progress(f"evaluating {task.model.name}", len(files)) as step:
        for _ in range(done):
            step()
        try:
            for row in workplace.rows(missing):
                rows[row["file"]] = row
                if state is not None:
                    state.append(row)
                done += 1
                step()
        except KeyboardInterrupt:
            advice = f"; the same command goes on from there ({state.path})" if state else ""
            note(f"stopped after {done} of {len(files)} files{advice}")
            raise
    return [rows[key] for key in keys]


def _state_file(path: Path | None, identity: Mapping[str, Any]) -> StateFile | None:
    if path is not None:
        return StateFile(path, identity)
    name = f"{identity['task']}-{content_hash(repr(identity).encode())[:16]}.jsonl"
    try:
        folder = default_directory() / "evaluations"
        make_private(folder)
        try:
            return StateFile(folder / name, identity)
        except ValueError:  # by its name it can only be this evaluation's, so it is damaged
            (folder / name).unlink()
            return StateFile(folder / name, identity)
    except OSError as error:
        warnings.warn(f"an interrupt will lose what is done: {error}", CacheWarning, stacklevel=2)
        return None


# Version of the JSON, which docs/tools/inspect.md describes.
FORMAT = 1

# The percentiles that are printed; the JSON has more.
COLUMNS = ("median", "p90", "p95", "p99", "max")


def latencies(found: Evaluated) -> dict[str, Latency]:
    """Return the latencies of each engine."""
    engines = found.rows[0]["seconds"]
    return {engine: Latency.of([row["seconds"][engine] for row in found.rows]) for engine in engines}


def common_facts(model: Path, found: Evaluated) -> dict[str, Any]:
    """Return what the JSON of every evaluation begins with."""
    engines = latencies(found)
    return {
        "format": FORMAT,
        "model": model,
        "device": found.engines.device,
        "precision": found.engines.precision,
        "litert": found.engines.litert,
        "files": len(found.rows),
        "preprocessing_seconds": asdict(_preprocessing(found)),
        "device_seconds": asdict(engines[DEVICE]),
        "litert_seconds": asdict(engines[LITERT]) if LITERT in engines else None,
    }


def print_latencies(found: Evaluated, names: Mapping[str, str]) -> None:
    """names: what the lines of the tool call the engines."""
    engines = latencies(found)
    console.print(f"Num evaluation runs: {len(found.rows)}")
    lines = {"Preprocessing": _preprocessing(found)}
    lines |= {name: engines[engine] for engine, name in names.items() if engine in engines}
    for name, latency in lines.items():
        console.print(f"{name} latency: avg={1e6 * latency.avg:.6g}(us), std_dev={1e6 * latency.std:.6g}(us)")


def print_percentiles(found: Evaluated) -> None:
    """Print a table of latencies in milliseconds, a column for each engine."""
    titles = {DEVICE: f"{escape(found.engines.device['name'])}, {found.engines.precision}"}
    if litert := found.engines.litert:
        titles[LITERT] = f"LiteRT {litert['version']} CPU, threads: {litert['threads']}"
    engines = latencies(found)
    listing = Listing("latency, ms", *COLUMNS, right=COLUMNS)
    for engine, title in titles.items():
        times = asdict(engines[engine])
        listing.add_row(title, *(f"{1e3 * times[name]:.3f}" for name in COLUMNS))
    console.print("", listing, sep="\n")


def beside(numbers: Mapping[str, float]) -> str:
    """Return the device's number, and LiteRT's after it."""
    behind = f" [dim](LiteRT {numbers[LITERT]:.6g})[/]" if LITERT in numbers else ""
    return f"{numbers[DEVICE]:.6g}{behind}"


def _preprocessing(found: Evaluated) -> Latency:
    return Latency.of([row["preprocessing_seconds"] for row in found.rows])


# Names here of flags of TFLite's tools, where the help has to fit 80 columns.
FLAGS = {
    "ground_truth_images_path": "images",
    "ground_truth_labels": "ground-truth",
    "model_output_labels": "labels",
    "denylist_file_path": "denylist",
    "num_images": "num-images",
    "num_interpreter_threads": "num-threads",
}

evaluate_app = typer.Typer(
    no_args_is_help=True,
    help="Measure how right a model is, over many files, on the device and on LiteRT's CPU.",
    context_settings={"token_normalize_func": lambda token: FLAGS.get(token, token)},
)

Images = Annotated[Path, typer.Option("--images", metavar="DIR", help="The images.", show_default=False)]

Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="The model's labels, line n naming class n.",
        show_default="those packed into the model",
    ),
]

Count = Annotated[
    int, typer.Option("--num-images", min=0, help="Only the first ones, in the order of their names; 0 for all.")
]

Alone = Annotated[bool, typer.Option("--no-litert", help="Leave LiteRT's CPU interpreter out.")]

Threads = Annotated[
    int | None, typer.Option("--num-threads", min=1, help="Threads of LiteRT.", show_default="all cores")
]

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FILE",
        help="Where to keep what is done until all is done, for going on after an interrupt.",
        show_default="a file in the cache's directory",
    ),
]


@evaluate_app.command("imagenet")
@as_verb
@with_options("device", "precision")
def evaluate_imagenet(
    model: ModelPath,
    images: Images,
    ground_truth: Annotated[
        Path,
        typer.Option(
            "--ground-truth",
            metavar="FILE",
            help="Line n is the label of the n-th image, in the order of their names.",
            show_default=False,
        ),
    ],
    options: tflgpu.Options,
    labels: Labels = None,
    denylist: Annotated[
        Path | None,
        typer.Option(
            "--denylist",
            metavar="FILE",
            help="Numbers of images to leave out, from 1, one a line.",
            show_default=False,
        ),
    ] = None,
    num_images: Count = 0,
    mean: Mean = None,
    std: Std = None,
    alone: Alone = False,
    threads: Threads = None,
    workers: Workers = 1,
    address: Address = None,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """Count how often a classifier's best class, or one of its best ten, is right.

    Of each image the square in the middle, 87.5% of its shorter side, is resized to what the model takes.
    """
    names = _labels(model, labels)
    if not names:
        raise ValueError(f"{model} has no labels packed into it; name a file with --labels")
    chosen = labelled_images(images, ground_truth, names, denylist)[: num_images or None]
    task = Classification(
        model=model.absolute(),
        options=options,
        mean=mean,
        std=std,
        litert=not alone,
        threads=threads or os.cpu_count(),
        classes=len(names),
    )
    with evaluated(task, [image.file for image in chosen], state, workers, address) as found:
        accuracies = top_k_accuracies(found.rows, chosen, names)
        firsts = [{best[0] for best in row["best"].values()} for row in found.rows]
        same = None if alone else sum(len(each) == 1 for each in firsts)
        if as_json:
            print_json(common_facts(model, found) | {"topk_accuracies": accuracies, "same_top1": same})
            return
        print_latencies(found, {DEVICE: "Inference", LITERT: "Reference"})
        for place in range(len(accuracies[DEVICE])):
            numbers = {engine: each[place] for engine, each in accuracies.items()}
            console.print(f"Top-{place + 1} Accuracy: {beside(numbers)}")
        if same is not None:
            console.print(f"\nthe device and LiteRT name the same class for {same} of {len(chosen)} images")
        print_percentiles(found)


@evaluate_app.command("coco")
@as_verb
@with_options("device", "precision")
def evaluate_coco(
    model: ModelPath,
    images: Images,
    annotations: Annotated[
        Path,
        typer.Option(
            "--ground-truth",
            metavar="FILE",
            help="COCO's JSON of objects, such as instances_val2017.json.",
            show_default=False,
        ),
    ],
    options: tflgpu.Options,
    labels: Labels = None,
    num_images: Count = 0,
    mean: Mean = None,
    std: Std = None,
    alone: Alone = False,
    threads: Threads = None,
    workers: Workers = 1,
    address: Address = None,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """Measure the mean average precision of a detector that ends in TFLite_Detection_PostProcess.

    pycocotools counts; the extra `evaluate` brings it. Labels are those of the annotations' categories.
    """
    truth = Annotations(annotations, images, num_images or None)
    categories = truth.categories(_labels(model, labels))
    task = ObjectDetection(
        model=model.absolute(),
        options=options,
        mean=mean,
        std=std,
        litert=not alone,
        threads=threads or os.cpu_count(),
    )
    with evaluated(task, truth.files, state, workers, address) as found:
        precisions = truth.precisions(found.rows, categories)
        if as_json:
            found_precisions = {engine: _precision_as_dict(each) for engine, each in precisions.items()}
            print_json(common_facts(model, found) | {"average_precisions": found_precisions})
            return
        print_latencies(found, {DEVICE: "Inference", LITERT: "Reference"})
        for threshold in precisions[DEVICE].thresholds:
            numbers = {engine: each.thresholds[threshold] for engine, each in precisions.items()}
            console.print(f"Average Precision \\[IOU Threshold={threshold:g}]: {beside(numbers)}")
        console.print(f"Overall mAP: {beside({engine: each.mean for engine, each in precisions.items()})}")
        print_percentiles(found)


@evaluate_app.command("diff")
@as_verb
@with_options("device", "precision")
def evaluate_diff(
    model: ModelPath,
    inputs: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Images, .npy files, or .npz files with an array for each input.",
            show_default=False,
        ),
    ],
    options: tflgpu.Options,
    num_images: Count = 0,
    mean: Mean = None,
    std: Std = None,
    tolerance: Tolerance = None,
    threads: Threads = None,
    workers: Workers = 1,
    address: Address = None,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """Compare the device with LiteRT's CPU over a folder of inputs: the latency of both, the error of every output.

    What the numbers are, and the exit code, is as for `tflgpu diff`.
    """
    task = Difference(
        model=model.absolute(),
        options=options,
        mean=mean,
        std=std,
        threads=threads or os.cpu_count(),
    )
    with evaluated(task, input_files(inputs)[: num_images or None], state, workers, address) as found:
        infos = found.engines.outputs
        allowed = tolerance
        if allowed is None:
            allowed = default_tolerance(found.engines.precision, tflgpu.inspect(model, task.options).model.kind)
        pairs = zip(infos, deviations(found.rows, infos), strict=True)
        outputs = [OutputDiff.of(info, deviation, allowed) for info, deviation in pairs]
        passed = all(output.passed for output in outputs)
        if as_json:
            verdict = {"tolerance": allowed, "passed": passed, "outputs": [asdict(o) for o in outputs]}
            print_json(common_facts(model, found) | verdict)
        else:
            print_latencies(found, {LITERT: "Reference run", DEVICE: "Test run"})
            print_errors(outputs)
            print_percentiles(found)
            print_verdict(outputs, allowed)
    if not passed:
        raise typer.Exit(1)


def _labels(model: Path, labels: Path | None) -> list[str]:
    from tflgpu.model.metadata import labels_in_file  # a file of labels does without

    return read_labels(labels) if labels else labels_in_file(model.read_bytes())


def _precision_as_dict(precision: Precision) -> dict[str, Any]:
    thresholds = [{"iou": iou, "average_precision": each} for iou, each in precision.thresholds.items()]
    return {"thresholds": thresholds, "mean": precision.mean, "coco_stats": precision.stats}
