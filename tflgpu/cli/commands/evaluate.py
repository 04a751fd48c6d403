"""``tflgpu evaluate``: TFLite's evaluation tools, for the device and for LiteRT's CPU at once."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import tflgpu
from tflgpu.cli.arguments import Address, AsJson, Mean, ModelPath, Std, Workers, with_options
from tflgpu.cli.console import console, print_json
from tflgpu.cli.differences import OutputDiff, Tolerance, default_tolerance, print_errors, print_verdict
from tflgpu.cli.evaluating.evaluation_run import evaluated
from tflgpu.cli.evaluating.printing import beside, common_facts, print_latencies, print_percentiles
from tflgpu.cli.usage import as_verb
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
from tflgpu.evaluate.task import DEVICE, LITERT
from tflgpu.inputs import input_files, read_labels

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
