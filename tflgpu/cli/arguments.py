"""The arguments that several verbs share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import tflgpu
from tflgpu.inputs.input_folder import input_files
from tflgpu.inputs.input_reader import InputReader
from tflgpu.options import CacheMode, ExecutorChoice, Options, Precision, Tuning

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A .tflite file.", show_default=False)]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="cpu, gpu, index of `tflgpu devices`, or part of a device's or platform's name.",
        autocompletion=lambda: ["auto", "cpu", "gpu"],
    ),
]

PrecisionName = Annotated[
    Precision,
    typer.Option(
        "--precision",
        help="Storage on the device; auto is fp16 on GPUs, fp32 elsewhere; fp16_fast also multiplies in half.",
    ),
]

TuningName = Annotated[
    Tuning, typer.Option("--tuning", help="Measure no, few or all candidates for the parameters of kernels.")
]

Mean = Annotated[
    float | None,
    typer.Option(
        help="Pixels 0..255 become (pixel - mean) / std.",
        show_default="as the model's metadata say; else 8-bit inputs take pixels as they are, others -1..1",
    ),
]

Std = Annotated[
    float | None, typer.Option(help="See --mean; --mean 0 --std 255 gives 0..1.", show_default="as for --mean")
]

Workers = Annotated[int, typer.Option(min=1, help="Processes with a device each; more than one need Ray.")]

Address = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A cluster of Ray, such as ray://host:10001.", show_default="this machine"),
]

CacheDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--cache-dir",
        metavar="PATH",
        help="Directory or bundle of compiled models; several are searched in this order.",
        show_default="TFLGPU_CACHE_DIR, or the platform's cache directory",
    ),
]


def compile_options(
    model: ModelPath,
    device: DeviceName = "auto",
    precision: PrecisionName = "auto",
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="PART",
            help="With precision auto: store in half what keeps every output this near, as a part of its range.",
            show_default="none",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Images, .npy or .npz files to try for --tolerance, each for all inputs.",
            show_default="generated inputs",
        ),
    ] = None,
    executor: Annotated[ExecutorChoice, typer.Option(help="Launches, or one kernel that runs all of them.")] = "auto",
    tuning: TuningName = "none",
    signature: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Entry point to run.", show_default="the first"),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Size of the first axis of every input.", show_default="the file's")
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Tensor to compute; give it several times for several.",
            show_default="the model's outputs",
        ),
    ] = None,
    cpu_ops: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPS",
            help="Operators to leave to LiteRT's CPU: SOFTMAX, 12 or 60-65, by commas.",
            show_default="none",
        ),
    ] = None,
    checks: Annotated[
        bool, typer.Option("--checks", help="Fail for indices out of range and for divisors of zero, as LiteRT does.")
    ] = False,
    cache_dir: CacheDirs = None,
    cache: Annotated[
        CacheMode, typer.Option(metavar="MODE", help="What to do with it: readwrite, read, require or off.")
    ] = "readwrite",
) -> Options:
    """The options of a compilation, as every verb has them that runs a model."""
    interface = Options(signature=signature, batch=batch)
    return Options(
        device=device,
        precision=precision,
        tolerance=tolerance,
        calibration=_calibration(model, calibration, interface) if calibration else None,
        executor=executor,
        tuning=tuning,
        signature=signature,
        batch=batch,
        outputs=outputs,
        cpu_ops=_operators(cpu_ops or ()),
        checks=checks,
        cache_dir=cache_dir,
        cache=cache,
    )


def _calibration(model: Path, folder: Path, options: Options) -> list[Any]:
    """What the files of a folder are for the model's inputs."""
    reader = InputReader(model, tflgpu.inspect(model, options).model.inputs)
    return [reader.read([path]) for path in input_files(folder)]


def _operators(listed: Sequence[str]) -> list[str | int | range]:
    """``["SOFTMAX,12", "60-65"]`` as ``Options.cpu_ops`` takes it; both ends of a range belong to it."""
    operators: list[str | int | range] = []
    for word in (word.strip() for text in listed for word in text.split(",")):
        if numbers := re.fullmatch(r"(\d+)(?:-(\d+))?", word):
            first, last = numbers.groups()
            operators.append(int(first) if last is None else range(int(first), int(last) + 1))
        else:
            operators.append(word)
    return operators


def with_compile_options(verb: Callable[..., None]) -> Callable[..., None]:
    """``verb`` as the command line sees it: :func:`compile_options`' parameters in place of ``options``."""
    own = dict(inspect.signature(verb, eval_str=True).parameters)
    shared = dict(inspect.signature(compile_options, eval_str=True).parameters)
    del shared["model"]
    as_json = own.pop("as_json")
    del own["options"]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*own.values(), *shared.values(), as_json)]

    @wraps(verb)
    def called(**arguments: Any) -> None:
        options = compile_options(arguments["model"], **{name: arguments.pop(name) for name in shared})
        verb(**arguments, options=options)

    # Which Typer reads.
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called
