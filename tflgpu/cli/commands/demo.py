"""``tflgpu demo``: a small network reads handwritten digits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.columns import Columns
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.cli.arguments import AsJson, with_options
from tflgpu.cli.commands.devices import device_facts
from tflgpu.cli.console import Listing, console, note, print_json
from tflgpu.cli.progress import compile_model
from tflgpu.cli.tables import kernel_table, kernels_as_list, start_kind, start_table
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.fallback import is_installed
from tflgpu.report.profile import Profile

WHITE = 16  # of this data set

SHADES, ASCII_SHADES = " ░▒▓█", " .:*#"

DRAWN = 4  # digits that fit beside each other in 80 columns

Images = NDArray[np.float32]


@dataclass(frozen=True)
class Answer:
    """One engine's predictions, and the seconds it took for all of them."""

    engine: str
    predictions: NDArray[np.intp]
    seconds: float


@with_options("device", "precision")
def run_demo(options: tflgpu.Options, as_json: AsJson = False) -> None:
    """Read handwritten digits with a small network on the best device, and show how it was done."""
    folder = examples_folder() / "digits"
    path = folder / "digits.tflite"
    with np.load(folder / "held_out.npz", allow_pickle=False) as held_out:
        drawn, labels = held_out["images"], held_out["labels"]
    images = drawn.reshape(-1, 1, 8, 8, 1) / np.float32(WHITE)
    with compile_model(path, options) as model:
        answers = [_ask("tflgpu", lambda image: model.run(image)["probabilities"], images)]
        if is_installed():
            try:
                rival = LiteRT(path.read_bytes(), None)
                answers.append(_ask(rival.name, lambda image: rival.run([image])[0], images))
            except (ImportError, ValueError) as error:  # as where an emulated processor lacks its instructions
                note(f"LiteRT is left out: {error}")
        profile = model.profile(images[0])
    if as_json:
        print_json(_as_dict(model, answers, labels, profile))
    else:
        _print(model, answers, drawn, labels, profile)


def examples_folder() -> Path:
    """Return the examples: inside an installed package, beside it in a checkout."""
    package = Path(tflgpu.__file__).parent
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"


def _ask(engine: str, classify: Callable[[Images], NDArray[Any]], images: Images) -> Answer:
    classify(images[0])  # the first run of every engine pays for what the others find ready
    start = time.perf_counter()
    predictions = np.array([classify(image).argmax() for image in images])
    return Answer(engine, predictions, time.perf_counter() - start)


def _accuracy(answer: Answer, labels: NDArray[np.uint8]) -> float:
    return float((answer.predictions == labels).mean())


def _as_dict(
    model: CompiledModel, answers: list[Answer], labels: NDArray[np.uint8], profile: Profile
) -> dict[str, Any]:
    return {
        "device": device_facts(model.device),
        "precision": model.precision,
        "init_seconds": dict(model.seconds),
        "digits": len(labels),
        "answers": [
            {
                "engine": a.engine,
                "accuracy": _accuracy(a, labels),
                "seconds": a.seconds,
                "predictions": a.predictions.tolist(),
            }
            for a in answers
        ],
        "kernels": kernels_as_list(profile),
    }


def _print(
    model: CompiledModel, answers: list[Answer], drawn: NDArray[np.uint8], labels: NDArray[np.uint8], profile: Profile
) -> None:
    facts = f"{model.device.platform}, {model.device.compute_units} compute units, {model.precision}"
    heading = f"[bold]{escape(model.device.name)}[/]\n{escape(facts)}"
    console.print(Panel.fit(heading, title="tflgpu reads handwritten digits", title_align="left", border_style="cyan"))
    console.print("", start_table([start_kind(model)], [model.seconds], "total"), "", sep="\n")
    _print_answers(answers, labels)
    pictures = Columns(_pictures(answers, drawn, labels), padding=(0, 3))
    console.print("", pictures, "", kernel_table(profile), "", sep="\n")
    operators, kernels = len(model.report.operators), len(profile.kernels)
    console.print(f"{operators} operators became {kernels} kernels: a + joins what one kernel computes")


def _print_answers(answers: list[Answer], labels: NDArray[np.uint8]) -> None:
    numbers = ("right", "accuracy", "us a digit")
    result = Listing("engine", *numbers, right=numbers, title=f"{len(labels)} digits that training never saw")
    for answer in answers:
        right = int((answer.predictions == labels).sum())
        result.add_row(
            answer.engine, str(right), f"{right / len(labels):.2%}", f"{1e6 * answer.seconds / len(labels):.0f}"
        )
    console.print(result)
    if len(answers) > 1:
        same = int((answers[0].predictions == answers[1].predictions).sum())
        console.print(f"both give the same answer to {same} of {len(labels)}")


def _pictures(answers: list[Answer], drawn: NDArray[np.uint8], labels: NDArray[np.uint8]) -> list[Text]:
    return [
        _picture(drawn[i], [int(a.predictions[i]) for a in answers], int(labels[i]))
        for i in _worth_seeing(answers[0], labels)
    ]


def _worth_seeing(answer: Answer, labels: NDArray[np.uint8]) -> list[int]:
    """Return the first digits that were read right, and the first that was not, if there is one."""
    correct = answer.predictions == labels
    wrong = np.flatnonzero(~correct)[:1].tolist()
    return [*np.flatnonzero(correct)[: DRAWN - len(wrong)].tolist(), *wrong]


def _picture(image: NDArray[np.uint8], predictions: list[int], label: int) -> Text:
    """Return a grey image drawn with characters, two for each pixel, which make it square; and what it was read as."""
    shades = ASCII_SHADES if console.options.ascii_only else SHADES
    levels = np.rint(image / WHITE * (len(shades) - 1)).astype(int)
    drawing = "\n".join("".join(shades[level] * 2 for level in row) for row in levels)
    caption = Text(f"\nread as {predictions[0]}", "bold")
    if predictions[0] != label:
        caption = Text(f"\nread as {predictions[0]}, is {label}", "bold red")
    others = "".join(f"\nLiteRT: {p}" for p in predictions[1:])
    return Text.assemble(drawing, caption, (others, "dim"))
